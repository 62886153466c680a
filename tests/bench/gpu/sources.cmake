# What weir-gpu-bench is made of, but for its main: tests/cuda links the same over the emulated device.
set(weir_gpu_bench_sources
  decode_rows.cc device_arrays.cc fastest_product.cc gpu_bench.cc gpu_report.cc limit_rows.cc model_rows.cc prefill_rows.cc
  product_rows.cc row_op_rows.cc ../bench_models.cc)
list(TRANSFORM weir_gpu_bench_sources PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
