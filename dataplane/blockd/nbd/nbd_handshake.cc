#include "dataplane/blockd/nbd/nbd_handshake.h"

#include <algorithm>
#include <utility>

#include "dataplane/blockd/nbd/big_endian.h"
#include "dataplane/blockd/nbd/nbd_error.h"
#include "dataplane/runtime/error.h"

namespace sarsen::nbd {
namespace {

using Next = HandshakeStep::Next;

// Appends one option reply: header, then whatever `payload` holds.
void append_reply(std::vector<std::byte>& out, Option option, OptionReply type,
                  std::span<const std::byte> payload = {}) {
  BigEndianWriter writer(out);
  writer.put(kOptionReplyMagic);
  writer.put(option);
  writer.put(type);
  writer.put(static_cast<std::uint32_t>(payload.size()));
  out.insert(out.end(), payload.begin(), payload.end());
}

HandshakeStep refuse(Option option, OptionReply type, std::string_view sentence) {
  HandshakeStep step;
  const auto text = sentence.substr(0, kStringBytesMax);
  append_reply(step.reply, option, type, std::as_bytes(std::span(text)));
  return step;
}

HandshakeStep refuse_malformed(Option option) {
  return refuse(option, OptionReply::invalid, "the data of this option is malformed");
}

HandshakeStep refuse_open(Option option, const Error& error) {
  if (is(error, RuntimeError::not_found)) {
    return refuse(option, OptionReply::unknown_export, "there is no such export");
  }
  if (error.error_class() == ErrorClass::cancelled) {
    return refuse(option, OptionReply::shutdown, "the server is stopping");
  }
  return refuse(option, OptionReply::policy, error.message());
}

void append_info(std::vector<std::byte>& out, Option option, InfoType type,
                 std::span<const std::byte> rest) {
  std::vector<std::byte> payload;
  BigEndianWriter(payload).put(type);
  payload.insert(payload.end(), rest.begin(), rest.end());
  append_reply(out, option, OptionReply::info, payload);
}

void append_text_info(std::vector<std::byte>& out, Option option, InfoType type,
                      std::string_view text) {
  append_info(out, option, type, std::as_bytes(std::span(text)));
}

void append_size_info(std::vector<std::byte>& out, Option option, const Export& opened,
                      std::uint16_t flags) {
  std::vector<std::byte> payload;
  BigEndianWriter writer(payload);
  writer.put(opened.target->size_bytes());
  writer.put(flags);
  append_info(out, option, InfoType::export_size_and_flags, payload);
}

void append_block_size_info(std::vector<std::byte>& out, Option option, const Export& opened) {
  std::vector<std::byte> payload;
  BigEndianWriter writer(payload);
  writer.put(opened.block_bytes_min);
  writer.put(kBlockBytesPreferred);
  writer.put(kPayloadBytesMax);
  append_info(out, option, InfoType::block_size, payload);
}

// The data of INFO and GO.
struct ExportRequest {
  std::string name;
  std::vector<InfoType> wanted;

  bool wants(InfoType type) const {
    return std::find(wanted.begin(), wanted.end(), type) != wanted.end();
  }
};

std::optional<ExportRequest> parse_export_request(std::span<const std::byte> data) {
  BigEndianReader reader(data);
  ExportRequest request;
  const std::uint32_t name_bytes = reader.u32();
  if (name_bytes > kStringBytesMax) return std::nullopt;
  request.name = reader.text(name_bytes);
  for (std::uint16_t count = reader.u16(); count > 0 && reader.ok(); --count) {
    request.wanted.push_back(InfoType(reader.u16()));
  }
  if (!reader.finished()) return std::nullopt;
  return request;
}

// The data of LIST_META_CONTEXT and SET_META_CONTEXT.
struct ContextRequest {
  std::string name;
  bool any_query = false;
  bool matches_by_name = false;       // "base:allocation"
  bool matches_by_namespace = false;  // "base:", which only a list understands
};

std::optional<ContextRequest> parse_context_request(std::span<const std::byte> data) {
  BigEndianReader reader(data);
  ContextRequest request;
  const std::uint32_t name_bytes = reader.u32();
  if (name_bytes > kStringBytesMax) return std::nullopt;
  request.name = reader.text(name_bytes);
  for (std::uint32_t count = reader.u32(); count > 0 && reader.ok(); --count) {
    const std::uint32_t query_bytes = reader.u32();
    if (query_bytes > kStringBytesMax) return std::nullopt;
    const std::string_view query = reader.text(query_bytes);
    // A query starts with a namespace; without one it means nothing.
    if (query.find(':') == std::string_view::npos) return std::nullopt;
    request.any_query = true;
    request.matches_by_name |= query == kAllocationContext;
    request.matches_by_namespace |= query == "base:";
  }
  if (!reader.finished()) return std::nullopt;
  return request;
}

void append_context(std::vector<std::byte>& out, Option option, std::uint32_t id) {
  std::vector<std::byte> payload;
  BigEndianWriter writer(payload);
  writer.put(id);
  writer.text(kAllocationContext);
  append_reply(out, option, OptionReply::meta_context, payload);
}

}  // namespace

std::uint16_t transmission_flags(const Export& opened, bool structured_replies) {
  // Several connections may be used at once because a completed write is durable and visible on
  // all of them (the contract of BlockTarget).
  std::uint16_t flags = kHasFlags | kSendFlush | kSendFua | kCanMultiConn;
  if (structured_replies) flags |= kSendDontFragment;
  if (opened.target->read_only()) return flags | kReadOnly;
  return flags | kSendTrim | kSendWriteZeroes;
}

std::array<std::byte, kGreetingBytes> Handshake::greeting() {
  std::vector<std::byte> bytes;
  BigEndianWriter writer(bytes);
  writer.put(kGreetingMagic);
  writer.put(kOptionMagic);
  writer.put(static_cast<std::uint16_t>(kFixedNewstyle | kNoZeroes));
  std::array<std::byte, kGreetingBytes> greeting{};
  std::copy(bytes.begin(), bytes.end(), greeting.begin());
  return greeting;
}

Result<void> Handshake::accept_client_flags(std::span<const std::byte, kClientFlagsBytes> bytes) {
  const std::uint32_t flags = BigEndianReader(bytes).u32();
  if ((flags & ~std::uint32_t{kFixedNewstyle | kNoZeroes}) != 0) {
    return fail(make_error(NbdError::bad_client_flags, std::to_string(flags)));
  }
  fixed_newstyle_ = (flags & kFixedNewstyle) != 0;
  no_zeroes_ = (flags & kNoZeroes) != 0;
  return {};
}

Result<OptionHeader> Handshake::parse_option(
    std::span<const std::byte, kOptionHeaderBytes> bytes) const {
  BigEndianReader reader(bytes);
  if (reader.u64() != kOptionMagic) {
    return fail(make_error(NbdError::bad_magic, "at the start of an option"));
  }
  OptionHeader header;
  header.option = Option(reader.u32());
  header.length = reader.u32();
  // A client of the plain newstyle handshake does not understand option replies.
  if (!fixed_newstyle_ && header.option != Option::export_name) {
    return fail(make_error(NbdError::option_not_allowed, "without fixed newstyle"));
  }
  return header;
}

Result<HandshakeStep> Handshake::refuse_long(OptionHeader header) const {
  if (header.option == Option::export_name) {
    return fail(make_error(NbdError::option_too_big, "an export name"));
  }
  return refuse(header.option, OptionReply::too_big, "the data of this option is too long");
}

Task<Result<HandshakeStep>> Handshake::answer(OptionHeader header,
                                              std::span<const std::byte> data) {
  switch (header.option) {
    case Option::export_name: co_return co_await choose_export_old_way(data);
    case Option::info:
    case Option::go: co_return co_await choose_export(header.option, data);
    case Option::list_meta_context:
    case Option::set_meta_context: co_return co_await meta_context(header.option, data);
    case Option::list: co_return list(data);
    case Option::structured_reply: co_return structured_reply(data);
    case Option::abort: {
      HandshakeStep step;
      append_reply(step.reply, header.option, OptionReply::ack);
      step.next = Next::close;
      co_return step;
    }
    case Option::starttls:
    case Option::extended_headers: break;
  }
  co_return refuse(header.option, OptionReply::unsupported, "this option is not supported");
}

Task<Result<HandshakeStep>> Handshake::choose_export_old_way(std::span<const std::byte> data) {
  if (data.size() > kStringBytesMax) {
    co_return fail(make_error(NbdError::option_too_big, "an export name"));
  }
  std::string name(BigEndianReader(data).rest());
  auto opened = co_await exports_.open(name);
  if (!opened) co_return fail(make_error(NbdError::unknown_export, opened.error().message()));

  HandshakeStep step;
  step.next = Next::transmission;
  BigEndianWriter writer(step.reply);
  writer.put(opened->target->size_bytes());
  writer.put(transmission_flags(*opened, negotiated_.structured_replies));
  if (!no_zeroes_) writer.zeros(kExportNameZeroes);
  if (context_export_ != name) context_export_.reset();
  settle(std::move(*opened));
  co_return step;
}

Task<HandshakeStep> Handshake::choose_export(Option option, std::span<const std::byte> data) {
  auto request = parse_export_request(data);
  if (!request) co_return refuse_malformed(option);
  auto opened = co_await exports_.open(request->name);
  if (!opened) co_return refuse_open(option, opened.error());
  if (opened->block_bytes_min > 1 && option == Option::go &&
      !request->wants(InfoType::block_size)) {
    co_return refuse(option, OptionReply::block_size_required,
                     "ask for the block sizes of this export first");
  }

  HandshakeStep step;
  const std::uint16_t flags = transmission_flags(*opened, negotiated_.structured_replies);
  append_size_info(step.reply, option, *opened, flags);
  append_block_size_info(step.reply, option, *opened);
  if (request->wants(InfoType::name)) {
    append_text_info(step.reply, option, InfoType::name, opened->summary.name);
  }
  if (request->wants(InfoType::description) && !opened->summary.description.empty()) {
    append_text_info(step.reply, option, InfoType::description, opened->summary.description);
  }
  append_reply(step.reply, option, OptionReply::ack);
  if (option == Option::go) {
    step.next = Next::transmission;
    if (context_export_ != request->name) context_export_.reset();
    settle(std::move(*opened));
  }
  co_return step;
}

Task<HandshakeStep> Handshake::meta_context(Option option, std::span<const std::byte> data) {
  const bool set = option == Option::set_meta_context;
  // Whatever was selected before is forgotten, even when this attempt fails.
  if (set) context_export_.reset();
  if (!negotiated_.structured_replies) {
    co_return refuse(option, OptionReply::invalid, "structured replies come first");
  }
  auto request = parse_context_request(data);
  if (!request) co_return refuse_malformed(option);
  auto opened = co_await exports_.open(request->name);
  if (!opened) co_return refuse_open(option, opened.error());

  HandshakeStep step;
  const bool selected =
      set ? request->matches_by_name
          : !request->any_query || request->matches_by_name || request->matches_by_namespace;
  if (selected) append_context(step.reply, option, set ? kAllocationContextId : 0);
  if (selected && set) context_export_ = request->name;
  append_reply(step.reply, option, OptionReply::ack);
  co_return step;
}

HandshakeStep Handshake::list(std::span<const std::byte> data) {
  if (!data.empty()) return refuse_malformed(Option::list);
  HandshakeStep step;
  for (const ExportSummary& summary : exports_.list()) {
    std::vector<std::byte> payload;
    BigEndianWriter writer(payload);
    writer.put(static_cast<std::uint32_t>(summary.name.size()));
    writer.text(summary.name);
    writer.text(summary.description);
    append_reply(step.reply, Option::list, OptionReply::server, payload);
  }
  append_reply(step.reply, Option::list, OptionReply::ack);
  return step;
}

HandshakeStep Handshake::structured_reply(std::span<const std::byte> data) {
  if (!data.empty()) return refuse_malformed(Option::structured_reply);
  negotiated_.structured_replies = true;
  HandshakeStep step;
  append_reply(step.reply, Option::structured_reply, OptionReply::ack);
  return step;
}

void Handshake::settle(Export opened) {
  negotiated_.opened = std::move(opened);
  negotiated_.allocation_context = context_export_.has_value();
}

}  // namespace sarsen::nbd
