#include "server/grpc/reflection_service.h"

#include <set>
#include <utility>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "grpc/reflection/v1/reflection.grpc.pb.h"
#include "grpc/reflection/v1alpha/reflection.grpc.pb.h"
#include "grpcpp/support/server_callback.h"
#include "server/grpc/status.h"

namespace weir {
namespace {

namespace pb = google::protobuf;

constexpr size_t kMaxNameBytes = 256;  // of a name that is quoted back

// A file and what it imports, each once.
void AddFile(const pb::FileDescriptor* file, std::set<const pb::FileDescriptor*>* added,
             pb::RepeatedPtrField<std::string>* out) {
  if (!added->insert(file).second) return;
  pb::FileDescriptorProto proto;
  file->CopyTo(&proto);
  proto.SerializeToString(out->Add());
  for (int i = 0; i < file->dependency_count(); ++i) AddFile(file->dependency(i), added, out);
}

template <class Response>
void FillFile(const pb::FileDescriptor* file, const std::string& what, Response* response) {
  if (file == nullptr) {
    response->mutable_error_response()->set_error_code(static_cast<int>(grpc::StatusCode::NOT_FOUND));
    response->mutable_error_response()->set_error_message("nothing here is named " +
                                                          CleanText(what, kMaxNameBytes));
    return;
  }
  std::set<const pb::FileDescriptor*> added;
  AddFile(file, &added, response->mutable_file_descriptor_response()->mutable_file_descriptor_proto());
}

template <class Response>
void FillExtensionNumbers(const std::string& type_name, Response* response) {
  const pb::DescriptorPool& pool = *pb::DescriptorPool::generated_pool();
  const pb::Descriptor* type = pool.FindMessageTypeByName(type_name);
  if (type == nullptr) return FillFile(nullptr, type_name, response);
  std::vector<const pb::FieldDescriptor*> extensions;
  pool.FindAllExtensions(type, &extensions);
  auto* out = response->mutable_all_extension_numbers_response();
  out->set_base_type_name(type_name);
  for (const pb::FieldDescriptor* extension : extensions) out->add_extension_number(extension->number());
}

template <class Request, class Response>
void Answer(const Request& request, const std::vector<std::string>& services, Response* response) {
  response->Clear();
  response->set_valid_host(request.host());
  *response->mutable_original_request() = request;
  const pb::DescriptorPool& pool = *pb::DescriptorPool::generated_pool();
  switch (request.message_request_case()) {
    case Request::kFileByFilename:
      return FillFile(pool.FindFileByName(request.file_by_filename()), request.file_by_filename(), response);
    case Request::kFileContainingSymbol:
      return FillFile(pool.FindFileContainingSymbol(request.file_containing_symbol()),
                      request.file_containing_symbol(), response);
    case Request::kFileContainingExtension: {
      const auto& wanted = request.file_containing_extension();
      const pb::Descriptor* type = pool.FindMessageTypeByName(wanted.containing_type());
      const pb::FieldDescriptor* extension =
          type == nullptr ? nullptr : pool.FindExtensionByNumber(type, wanted.extension_number());
      return FillFile(extension == nullptr ? nullptr : extension->file(), wanted.containing_type(), response);
    }
    case Request::kAllExtensionNumbersOfType:
      return FillExtensionNumbers(request.all_extension_numbers_of_type(), response);
    case Request::kListServices:
      for (const std::string& name : services)
        response->mutable_list_services_response()->add_service()->set_name(name);
      return;
    default:
      response->mutable_error_response()->set_error_code(
          static_cast<int>(grpc::StatusCode::INVALID_ARGUMENT));
      response->mutable_error_response()->set_error_message("the request asks for nothing");
  }
}

// One stream: a question, its answer, the next question. Owns itself until OnDone; gRPC's threads.
template <class Request, class Response>
class Conversation final : public grpc::ServerBidiReactor<Request, Response> {
 public:
  Conversation(const absl::Status& admitted, const std::vector<std::string>* services)
      : services_(*services) {
    if (admitted.ok())
      this->StartRead(&request_);
    else
      this->Finish(ToGrpc(admitted));
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return this->Finish(grpc::Status::OK);
    Answer(request_, services_, &response_);
    this->StartWrite(&response_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return this->Finish(grpc::Status::OK);
    this->StartRead(&request_);
  }
  void OnDone() override { delete this; }

  const std::vector<std::string>& services_;
  Request request_;
  Response response_;
};

template <class Base, class Request, class Response>
class Reflection final : public Base {
 public:
  Reflection(const Gate* gate, std::vector<std::string> services)
      : gate_(*gate), services_(std::move(services)) {}
  grpc::ServerBidiReactor<Request, Response>* ServerReflectionInfo(
      grpc::CallbackServerContext* context) override {
    return new Conversation<Request, Response>(gate_.Identify(*context).status(), &services_);
  }

 private:
  const Gate& gate_;
  const std::vector<std::string> services_;
};

}  // namespace

std::vector<std::unique_ptr<grpc::Service>> MakeReflectionServices(const Gate* gate,
                                                                   std::vector<std::string> services) {
  namespace v1 = grpc::reflection::v1;
  namespace v1alpha = grpc::reflection::v1alpha;
  services.emplace_back(v1::ServerReflection::service_full_name());
  services.emplace_back(v1alpha::ServerReflection::service_full_name());
  std::vector<std::unique_ptr<grpc::Service>> made;
  made.push_back(
      std::make_unique<Reflection<v1::ServerReflection::CallbackService, v1::ServerReflectionRequest,
                                  v1::ServerReflectionResponse>>(gate, services));
  made.push_back(
      std::make_unique<Reflection<v1alpha::ServerReflection::CallbackService,
                                  v1alpha::ServerReflectionRequest, v1alpha::ServerReflectionResponse>>(
          gate, services));
  return made;
}

}  // namespace weir
