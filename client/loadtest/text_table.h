// TextTable: columns as wide as what is in them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/loadtest/distribution.h"

namespace weir {

// Cells are ASCII, or at least one column a character. The first column is aligned to the left, the others to
// the right.
std::string TextTable(const std::vector<std::vector<std::string>>& rows);

// 3 significant digits below 1,000 and none after the point above: "0.0123", "4.50", "1234". Values that are
// not there (negative) are "-".
std::string ShortNumber(double value);
// Of a distribution of nothing: "-".
std::string PartText(const Distribution& values, double Distribution::*part);

// "1,234,567"
std::string GroupedNumber(int64_t number);

}  // namespace weir
