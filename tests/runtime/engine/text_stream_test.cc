#include "runtime/engine/text_stream.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;

constexpr char kReplacement[] = "\xEF\xBF\xBD";

StopMatcher Stops(const std::vector<std::string>& stops) { return *StopMatcher::Create(stops); }

std::string Repeat(int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += kReplacement;
  return text;
}

// The UTF-8 decoder of the WHATWG Encoding standard, byte by byte, re-encoded. `tail` receives what its state
// would still be waiting on.
std::string ReferenceDecode(const std::string& bytes, std::string* tail) {
  std::string out;
  int needed = 0;
  uint8_t lower = 0x80;
  uint8_t upper = 0xBF;
  std::string pending;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const uint8_t byte = static_cast<uint8_t>(bytes[i]);
    if (needed == 0) {
      pending = bytes.substr(i, 1);
      if (byte <= 0x7F) {
        out += pending;
        pending.clear();
      } else if (byte >= 0xC2 && byte <= 0xDF) {
        needed = 1;
      } else if (byte >= 0xE0 && byte <= 0xEF) {
        if (byte == 0xE0) lower = 0xA0;
        if (byte == 0xED) upper = 0x9F;
        needed = 2;
      } else if (byte >= 0xF0 && byte <= 0xF4) {
        if (byte == 0xF0) lower = 0x90;
        if (byte == 0xF4) upper = 0x8F;
        needed = 3;
      } else {
        out += kReplacement;
        pending.clear();
      }
      continue;
    }
    const bool fits = lower <= byte && byte <= upper;
    lower = 0x80;
    upper = 0xBF;
    if (!fits) {
      out += kReplacement;
      pending.clear();
      needed = 0;
      --i;  // this byte again
      continue;
    }
    pending += bytes[i];
    if (--needed == 0) {
      out += pending;
      pending.clear();
    }
  }
  *tail = pending;
  return out;
}

std::string Decode(const std::string& bytes) {
  std::string out;
  Utf8Stream().Append(bytes, &out);
  return out;
}

TEST(Utf8Stream, InvalidBytesBecomeOneReplacementPerMaximalSubpart) {
  // Tables 3-8 to 3-11 of the Unicode standard, version 15.
  EXPECT_EQ(Decode("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), Repeat(8) + "A");
  EXPECT_EQ(Decode("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), Repeat(8) + "A");
  EXPECT_EQ(Decode("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), Repeat(5) + "A" + Repeat(2) + "B");
  EXPECT_EQ(Decode("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), Repeat(4) + "A");
}

TEST(Utf8Stream, EveryChunkingEqualsTheReferenceDecoder) {
  std::mt19937 engine(1);
  // Leads and continuations of all kinds, so that valid and broken sequences both abound.
  const std::string alphabet = "A\x80\x9F\xA0\xBF\xC1\xC2\xDF\xE0\xE1\xED\xEF\xF0\xF1\xF4\xF5\xFF\x90\x8F";
  for (int trial = 0; trial < 20'000; ++trial) {
    std::string bytes(engine() % 12, 0);
    for (char& c : bytes) c = alphabet[engine() % alphabet.size()];
    std::string expected_tail;
    const std::string expected = ReferenceDecode(bytes, &expected_tail);
    Utf8Stream stream;
    std::string out;
    for (size_t at = 0; at < bytes.size();) {
      const size_t size = trial % 2 == 0 ? 1 : engine() % 4;
      stream.Append(std::string_view(bytes).substr(at, size), &out);
      at += std::min(size, bytes.size() - at);
      std::string tail_now;
      ASSERT_EQ(out, ReferenceDecode(bytes.substr(0, at), &tail_now)) << "held back longer than needed";
      ASSERT_EQ(stream.tail(), tail_now);
    }
    ASSERT_EQ(out, expected);
    ASSERT_EQ(stream.tail(), expected_tail);
    ASSERT_EQ(stream.tail().empty(), !Utf8Stream::IsIncompleteCharacter(stream.tail()));
  }
}

struct Delivery {
  std::vector<std::string> chunks;
  std::string rest;  // by Finish
  std::string raw_tail;
  int stop = -1;

  std::string Text() const {
    std::string text;
    for (const std::string& chunk : chunks) text += chunk;
    return text + rest;
  }
};

Delivery Deliver(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  TextStream stream(Stops(stops));
  Delivery delivery;
  for (const std::string& piece : pieces) {
    std::string chunk;
    delivery.stop = stream.Append(piece, &chunk);
    delivery.chunks.push_back(chunk);
    if (delivery.stop >= 0) break;
  }
  stream.Finish(&delivery.rest, &delivery.raw_tail);
  return delivery;
}

TEST(TextStream, STR_01_ACharacterSplitOverTokensArrivesWhole) {
  const Delivery delivery = Deliver({}, {"ob ", "\xF0\x9F", "\x98\x8A", " ke"});
  EXPECT_THAT(delivery.chunks, ElementsAre("ob ", "", "\xF0\x9F\x98\x8A", " ke"));
  EXPECT_EQ(delivery.Text(), "ob \xF0\x9F\x98\x8A ke");
  EXPECT_EQ(delivery.raw_tail, "");
}

TEST(TextStream, STR_02_ACutCharacterIsInTheRawBytesOnly) {
  const Delivery delivery = Deliver({}, {"Hello", "!", " \xF0\x9F"});
  EXPECT_EQ(delivery.Text(), "Hello! ");
  EXPECT_EQ(delivery.raw_tail, "\xF0\x9F");
}

TEST(TextStream, STR_02_TheNextTurnOfTheSameTextCompletesTheCharacter) {
  TextStream first;
  std::string text;
  first.Append(" \xF0\x9F", &text);
  first.Finish(&text, nullptr);
  TextStream second({}, first.state());
  second.Append("\x98\x8A!", &text);
  EXPECT_EQ(text, " \xF0\x9F\x98\x8A!");
  TextStream fresh({}, first.state());
  fresh.Reset();
  std::string other;
  fresh.Append("new", &other);
  EXPECT_EQ(other, "new");
}

TEST(TextStream, STR_05_PiecesAreJoinedByteForByte) {
  EXPECT_EQ(Deliver({}, {" a", "b"}).Text(), " ab");
  EXPECT_EQ(Deliver({}, {"", " ", "a", "", "  b ", " "}).Text(), " a  b  ");
  EXPECT_EQ(Deliver({"zz"}, {" x", std::string(1, '\0'), " y"}).Text(), std::string(" x\0 y", 5));
}

TEST(TextStream, STR_06_StopStringsAreCutOverTokenBordersAndInsideTokens) {
  const Delivery over = Deliver({"unused", "DEFGHIJ"}, {"ABC", "DEF", "G", "HI", "J"});
  EXPECT_THAT(over.chunks, ElementsAre("ABC", "", "", "", ""));
  EXPECT_EQ(over.Text(), "ABC");
  EXPECT_EQ(over.stop, 1);
  EXPECT_EQ(Deliver({"Pari"}, {"Paris"}).Text(), "");
  EXPECT_EQ(Deliver({"ris"}, {"Paris"}).Text(), "Pa");
  const Delivery never = Deliver({"DEFGHIJ"}, {"ABC", "DEF", "G", "HI", "X"});
  EXPECT_EQ(never.Text(), "ABCDEFGHIX");
  EXPECT_EQ(never.stop, -1);
  const Delivery ended = Deliver({"DEFGHIJ"}, {"ABC", "DEF"});
  EXPECT_THAT(ended.chunks, ElementsAre("ABC", ""));
  EXPECT_EQ(ended.rest, "DEF") << "the text ended before the stop did";
}

TEST(TextStream, STR_07_TextBeforeAStopInTheSameTokenIsDelivered) {
  EXPECT_EQ(Deliver({"\n"}, {"?\n"}).Text(), "?");
  EXPECT_EQ(Deliver({"\n"}, {"ab\ncd"}).Text(), "ab");
}

TEST(TextStream, STR_09_OverlappingStopsGiveTheSameInAnyOrder) {
  EXPECT_EQ(Deliver({"aab"}, {"a", "a", "a", "b"}).Text(), "a");
  EXPECT_EQ(Deliver({"ac", "b"}, {"a", "b"}).Text(), "a");
  EXPECT_EQ(Deliver({"b", "ac"}, {"a", "b"}).Text(), "a");
  EXPECT_EQ(Deliver({"abab"}, {"a", "b", "a", "b", "a", "b"}).Text(), "");
}

TEST(TextStream, WhatStaysHeldMovesToTheFront) {
  const std::vector<std::string> stops = {"abcde", "bcdfg"};
  EXPECT_EQ(Deliver(stops, {"abcd", "f", "!"}).Text(), "abcdf!");
  EXPECT_EQ(Deliver(stops, {"abcd", "f"}).Text(), "abcdf");
  EXPECT_EQ(Deliver(stops, {"abcd", "f", "g"}).Text(), "a");
}

TEST(TextStream, AStopEndsTheTextAndItsHalfCharacters) {
  TextStream stream(Stops({"###"}));
  std::string text;
  std::string raw_tail;
  EXPECT_EQ(stream.Append("a\xF0\x9F###b", &text), 0);
  stream.Finish(&text, &raw_tail);
  EXPECT_EQ(text, "a");
  EXPECT_EQ(raw_tail, "\xF0\x9F");
  EXPECT_EQ(stream.state().tail_size, 0) << "what follows a stop does not complete the character";
}

TEST(TextStream, AStopThatSharesACharacterWithItsTextIsHeldAsBytes) {
  // U+1F60A and U+1F60B differ in the last byte only.
  const Delivery hit = Deliver({"\xF0\x9F\x98\x8A"}, {"a\xF0\x9F", "\x98", "\x8A"});
  EXPECT_EQ(hit.Text(), "a");
  EXPECT_EQ(hit.stop, 0);
  EXPECT_EQ(Deliver({"\xF0\x9F\x98\x8A"}, {"a\xF0\x9F", "\x98", "\x8B"}).Text(), "a\xF0\x9F\x98\x8B");
}

TEST(TextStream, ASnapshotAtAnyTokenContinuesAlike) {
  const std::vector<std::string> stops = {"END", "aab\xF0\x9F\x98\x8A", "\xE2\x82"};
  std::mt19937 engine(3);
  const std::vector<std::string> parts = {"a",    "aa",   "ab",       "E",        "EN",       "D",
                                          "\xF0", "\x9F", "\x98\x8A", "\xE2\x82", "\xAC zzz", "b\xF0\x9F"};
  for (int trial = 0; trial < 3000; ++trial) {
    std::vector<std::string> pieces(8);
    for (std::string& piece : pieces) piece = parts[engine() % parts.size()];
    const Delivery expected = Deliver(stops, pieces);
    const size_t cut = engine() % pieces.size();
    TextStream stream(Stops(stops));
    std::string text;
    std::string raw_tail;
    int stop = -1;
    for (size_t i = 0; i < pieces.size() && stop < 0; ++i) {
      if (i == cut) {
        unsigned char bytes[sizeof(TextState)];
        const TextState state = stream.state();
        std::memcpy(bytes, &state, sizeof(state));
        TextState restored;
        std::memcpy(&restored, bytes, sizeof(restored));
        ASSERT_TRUE(restored.IsValid());
        stream = TextStream(Stops(stops), restored);
      }
      stop = stream.Append(pieces[i], &text);
    }
    stream.Finish(&text, &raw_tail);
    ASSERT_EQ(text, expected.Text());
    ASSERT_EQ(raw_tail, expected.raw_tail);
    ASSERT_EQ(stop, expected.stop);
  }
}

TEST(TextStream, EqualStatesAreEqualBytes) {
  const auto bytes_of = [](const TextState& state) {
    return std::string(reinterpret_cast<const char*>(&state), sizeof(state));
  };
  TextStream used(Stops({"abcdefgh"}));
  std::string text;
  used.Append("abcdefg", &text);
  used.Append("x abc\xF0", &text);
  used.Append("yab", &text);
  TextStream fresh(Stops({"abcdefgh"}));
  fresh.Append("ab", &text);
  EXPECT_EQ(bytes_of(used.state()), bytes_of(fresh.state()));
}

TEST(TextStream, ALongStopIsHeldInFull) {
  const std::string stop(256, 's');
  TextStream stream(Stops({stop}));
  std::string text;
  EXPECT_EQ(stream.Append("t" + stop.substr(1), &text), -1);
  EXPECT_EQ(text, "t");
  EXPECT_EQ(stream.state().held_size, 255);
  TextStream hit(Stops({stop}), stream.state());
  EXPECT_EQ(hit.Append("s", &text), 0);
  EXPECT_EQ(text, "t");
  EXPECT_EQ(stream.Append("!", &text), -1);
  EXPECT_EQ(text, "t" + stop.substr(1) + "!");
}

TEST(TextState, DamagedBytesAreRefused) {
  TextState state;
  EXPECT_TRUE(state.IsValid());
  state.tail_size = 4;
  EXPECT_FALSE(state.IsValid());
  state.tail_size = 1;
  state.tail[0] = 'a';
  EXPECT_FALSE(state.IsValid()) << "a whole character is never held back";
  state.tail[0] = '\xE2';
  EXPECT_TRUE(state.IsValid());
}

}  // namespace
}  // namespace weir
