// weir-gpu-bench: measures the CUDA column on one GPU. Needs NVIDIA's driver and nothing else.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>

#include "fmt/format.h"
#include "tests/bench/gpu/gpu_bench.h"

namespace weir::bench {
namespace {

constexpr int kFailed = 1;
constexpr int kNotRun = 2;  // wrong arguments, or no GPU

constexpr char kUsage[] =
    "usage: weir-gpu-bench [--device cuda:N] [--seconds S] [--only TEXT] [--values FILE] [--tiny]\n"
    "\n"
    "Prints a table in Markdown. --seconds: for all of it, 300 without it; rows that have no time left are\n"
    "skipped. --only: sections and rows whose name holds the text. --values: the rows as tab-separated "
    "values.\n"
    "--tiny: every row once at a size that means nothing, to see that all of it runs. cuBLASLt is compared "
    "with\n"
    "where the loader finds libcublasLt.so.13 or .12 (LD_LIBRARY_PATH).\n";

struct Arguments {
  std::string device = "cuda:0";
  std::string values;
  GpuBenchOptions options;
};

bool Parse(int argc, char** argv, Arguments* arguments) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--tiny") {
      arguments->options.tiny = true;
      continue;
    }
    if (i + 1 >= argc) return false;
    const char* const value = argv[++i];
    if (flag == "--device") {
      arguments->device = value;
    } else if (flag == "--only") {
      arguments->options.only = value;
    } else if (flag == "--values") {
      arguments->values = value;
    } else if (flag == "--seconds") {
      char* end = nullptr;
      arguments->options.seconds = std::strtod(value, &end);
      if (*end != '\0' || !(arguments->options.seconds > 0)) return false;
    } else {
      return false;
    }
  }
  return true;
}

std::string Today() {
  const std::time_t now = std::time(nullptr);
  char text[32] = {};
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", std::gmtime(&now));
  return text;
}

void Describe(GpuReport& report) {
  int index = 0, driver = 0, runtime = 0;
  cudaDeviceProp gpu{};
  if (cudaGetDevice(&index) != cudaSuccess || cudaGetDeviceProperties(&gpu, index) != cudaSuccess) return;
  static_cast<void>(cudaDriverGetVersion(&driver));
  static_cast<void>(cudaRuntimeGetVersion(&runtime));
  report.Text(fmt::format("# Weir's CUDA column on {}, {}\n", gpu.name, Today()));
  report.Text(fmt::format(
      "Compute capability {}.{}, {} SMs, {} MiB L2 cache, {} GiB; driver for CUDA {}.{}, built with "
      "{}.{}.",
      gpu.major, gpu.minor, gpu.multiProcessorCount, gpu.l2CacheSize >> 20, gpu.totalGlobalMem >> 30,
      driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10));
  report.Text(
      "MB are the bytes that have to move, GFLOP the operations of matrix products, counted as the last "
      "column says. "
      "The floor is the time that these take at the copy's bandwidth and the product's rate, whichever is "
      "longer.");
}

int Run(const Arguments& arguments) {
  absl::StatusOr<std::unique_ptr<Device>> device = CreateDevice(arguments.device);
  if (!device.ok()) {
    fmt::print(stderr, "weir-gpu-bench: {}\n", std::string(device.status().message()));
    return kNotRun;
  }
  if ((*device)->backend() != Backend::kCuda) {
    fmt::print(stderr, "weir-gpu-bench: device '{}' is no GPU; use cuda:N\n", arguments.device);
    return kNotRun;
  }
  std::FILE* values = nullptr;
  if (!arguments.values.empty()) {
    values = std::fopen(arguments.values.c_str(), "w");
    if (values == nullptr) {
      fmt::print(stderr, "weir-gpu-bench: cannot write '{}'\n", arguments.values);
      return kNotRun;
    }
  }
  GpuReport report(stdout, values);
  Describe(report);
  const int failed = RunGpuBench(**device, arguments.options, report);
  if (values != nullptr && std::fclose(values) != 0) {
    fmt::print(stderr, "weir-gpu-bench: cannot write '{}'\n", arguments.values);
    return kFailed;
  }
  if (failed == 0) return 0;
  fmt::print(stderr, "weir-gpu-bench: {} rows failed\n", failed);
  return kFailed;
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) {
  if (argc == 2 && (std::string_view(argv[1]) == "--help" || std::string_view(argv[1]) == "-h")) {
    std::fputs(weir::bench::kUsage, stdout);
    return 0;
  }
  weir::bench::Arguments arguments;
  if (!weir::bench::Parse(argc, argv, &arguments)) {
    std::fputs(weir::bench::kUsage, stderr);
    return weir::bench::kNotRun;
  }
  return weir::bench::Run(arguments);
}
