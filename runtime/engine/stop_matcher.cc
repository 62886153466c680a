#include "runtime/engine/stop_matcher.h"

#include "absl/status/status.h"
#include "fmt/format.h"

namespace weir {

absl::StatusOr<StopMatcher> StopMatcher::Create(std::span<const std::string> stops) {
  if (stops.size() > kMaxStops) {
    return absl::InvalidArgumentError(
        fmt::format("stop: at most {} strings are allowed, got {}", kMaxStops, stops.size()));
  }
  StopMatcher matcher;
  if (stops.empty()) return matcher;
  std::vector<Node>& nodes = matcher.nodes_;
  nodes.emplace_back();
  for (size_t s = 0; s < stops.size(); ++s) {
    if (stops[s].empty()) {
      return absl::InvalidArgumentError(fmt::format("stop[{}] is empty; leave it out", s));
    }
    if (stops[s].size() > kMaxStopBytes) {
      return absl::InvalidArgumentError(
          fmt::format("stop[{}] has {} bytes, at most {} are allowed", s, stops[s].size(), kMaxStopBytes));
    }
    uint16_t node = 0;
    for (const char c : stops[s]) {
      const uint8_t byte = static_cast<uint8_t>(c);
      uint16_t child = matcher.Child(node, byte);
      if (child == 0) {
        child = static_cast<uint16_t>(nodes.size());
        Node added;
        added.byte = byte;
        added.depth = static_cast<uint16_t>(nodes[node].depth + 1);
        added.next_sibling = nodes[node].first_child;
        nodes[node].first_child = child;
        if (node == 0) matcher.root_[byte] = child;
        nodes.push_back(added);
      }
      node = child;
    }
    if (nodes[node].match < 0) nodes[node].match = static_cast<int16_t>(s);
  }

  // Breadth first: a node's failure link is shallower than the node, so it is ready when it is needed. A
  // node's own stop is longer than any that its failure link knows.
  std::vector<uint16_t> queue{0};
  for (size_t head = 0; head < queue.size(); ++head) {
    const uint16_t parent = queue[head];
    for (uint16_t child = nodes[parent].first_child; child != 0; child = nodes[child].next_sibling) {
      Node& node = nodes[child];
      node.fail = parent == 0 ? 0 : matcher.Next(nodes[parent].fail, node.byte);
      if (node.match < 0) node.match = nodes[node.fail].match;
      queue.push_back(child);
    }
  }
  matcher.stop_sizes_.resize(stops.size());
  for (size_t s = 0; s < stops.size(); ++s) matcher.stop_sizes_[s] = stops[s].size();
  return matcher;
}

uint16_t StopMatcher::Child(uint16_t node, uint8_t byte) const {
  if (node == 0) return root_[byte];
  uint16_t child = nodes_[node].first_child;
  while (child != 0 && nodes_[child].byte != byte) child = nodes_[child].next_sibling;
  return child;
}

uint16_t StopMatcher::Next(uint16_t node, uint8_t byte) const {
  for (;;) {
    const uint16_t child = Child(node, byte);
    if (child != 0 || node == 0) return child;
    node = nodes_[node].fail;
  }
}

StopMatcher::Result StopMatcher::Scan(std::string_view held, std::string_view input) const {
  const size_t size = held.size() + input.size();
  if (empty()) return {.emit = size, .matched = -1, .end = size};
  uint16_t node = 0;
  size_t end = 0;
  for (const std::string_view part : {held, input}) {
    for (const char c : part) {
      node = Next(node, static_cast<uint8_t>(c));
      ++end;
      if (const int match = nodes_[node].match; match >= 0) {
        return {.emit = end - stop_sizes_[match], .matched = match, .end = end};
      }
    }
  }
  return {.emit = size - nodes_[node].depth, .matched = -1, .end = size};
}

}  // namespace weir
