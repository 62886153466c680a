// Prometheus's text format, taken apart.
#pragma once

#include <map>
#include <sstream>
#include <string>

namespace weir::testing {

struct MetricFamilyText {
  std::string type, help;
  std::map<std::string, double> samples;  // by the whole name with labels, as printed
};

// By name; samples of a histogram are with their family. What does not belong to one is under "".
inline std::map<std::string, MetricFamilyText> ParseMetrics(const std::string& text) {
  std::map<std::string, MetricFamilyText> families;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string hash, kind, name;
    if (line.rfind("# ", 0) == 0) {
      words >> hash >> kind >> name >> std::ws;
      std::string rest;
      std::getline(words, rest);
      (kind == "HELP" ? families[name].help : families[name].type) = rest;
      continue;
    }
    const size_t value = line.rfind(' ');
    const std::string sample = line.substr(0, value);
    std::string family = sample.substr(0, sample.find('{'));
    for (const char* suffix : {"_bucket", "_sum", "_count"})
      if (families.count(family) == 0 && family.ends_with(suffix)) family.resize(family.rfind('_'));
    if (families.count(family) == 0) family = "";
    families[family].samples[sample] = std::stod(line.substr(value + 1));
  }
  return families;
}

// One server's /metrics at one moment.
class Scrape {
 public:
  explicit Scrape(const std::string& text) : families_(ParseMetrics(text)) {}
  // Of one sample, written as Prometheus prints it; NaN when there is none.
  double operator()(const std::string& sample) const {
    for (const auto& [name, family] : families_)
      if (const auto found = family.samples.find(sample); found != family.samples.end()) return found->second;
    return std::stod("nan");
  }
  // Over all samples of a family.
  double Sum(const std::string& name) const {
    double sum = 0;
    const auto family = families_.find(name);
    if (family == families_.end()) return std::stod("nan");
    for (const auto& [sample, value] : family->second.samples) sum += value;
    return sum;
  }
  const std::map<std::string, MetricFamilyText>& families() const { return families_; }

 private:
  std::map<std::string, MetricFamilyText> families_;
};

}  // namespace weir::testing
