// The library in one page: connect, stream, look at an error.
#include <iostream>

#include "client/client.h"

int main(int argc, char** argv) {
  const auto client = weir::WeirClient::Connect(argc > 1 ? argv[1] : "127.0.0.1:7070");
  if (!client.ok()) {
    std::cerr << client.status().message() << "\n";
    return 1;
  }
  weir::v1::GenerateRequest request;
  request.mutable_prompt()->set_text("Once upon a time");
  request.mutable_stop()->set_max_tokens(50);
  const auto result = client->Generate(
      request, [](const weir::v1::Delta& delta) { std::cout << delta.text() << std::flush; });
  std::cout << "\n";
  if (!result.ok()) std::cerr << result.status().message() << "\n";
  return result.ok() ? 0 : 1;
}
