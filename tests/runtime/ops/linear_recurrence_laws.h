// The laws of the linear recurrence, as tests of any way to compute it (linear_recurrence_test.cc).
#pragma once

#include "gtest/gtest.h"
#include "runtime/ops/linear_recurrence/recurrence_head.h"

namespace weir {

// kKernel: what the kernel table has for the test's device. kCpuProducts: the CPU with whole chunks as matrix
// products, which its kernel leaves to other columns (kCpuWholeChunks).
enum class RecurrenceForm : uint8_t { kKernel, kCpuProducts };

class LinearRecurrenceLaws : public testing::TestWithParam<RecurrenceForm> {};

}  // namespace weir
