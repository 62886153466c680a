// The server's log: lines on standard error, written by a thread of its own, so that a pipe that nobody
// empties or a disk that hangs stops the log and nothing else.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "server/frontend/call_record.h"

namespace weir {

// `level` as spdlog names it; `format` is text or json: one object a line.
void SetUpLog(const std::string& level, const std::string& format);

// One line for a call that has ended: of level debug where it only read, else of info. Any thread.
void LogCall(const FinishedCall& call);

// Lines that were thrown away, oldest first, as they came faster than they could be written.
int64_t DroppedLogLines();

// Writes what waits. False when that took longer than `patience`: then nothing but _Exit ends the process.
bool FinishLog(absl::Duration patience);

}  // namespace weir
