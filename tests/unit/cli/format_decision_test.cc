#include "dataplane/cli/format_decision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sarsen {
namespace {

using testing::HasSubstr;
using testing::Optional;

const std::string kId = "2f1c7d3e-5b0a-4c9d-8e6f-0123456789ab";

DeviceUse unused_device() {
  return {.path = "/dev/sdx", .resolved_path = "/dev/sdx", .block_device = true, .reasons = {}};
}

DeviceContents store_contents() {
  DeviceContents contents;
  contents.store =
      FoundStore{.copies_found = 4, .copies_valid = 4, .device_ids = {kId}, .newest = Superblock{}};
  return contents;
}

const FormatRequest kPlain;
const FormatRequest kDestroy{.destroy = true, .confirmed_id = kId};

// The ordinary case must not ask for anything.
TEST(FormatDecision, formats_an_empty_device) {
  EXPECT_EQ(refuse_format(kPlain, unused_device(), {}), std::nullopt);
}

// I-CLI-1: a person who has learnt to add --destroy must not get further with it.
TEST(FormatDecision, no_option_makes_it_overwrite_what_is_not_ours) {
  DeviceContents contents = store_contents();
  contents.foreign = {{.what = "ext4 file system", .label = "home", .offset = "1080"}};
  for (const FormatRequest& request : {kPlain, kDestroy}) {
    EXPECT_THAT(refuse_format(request, unused_device(), contents),
                Optional(HasSubstr("a ext4 file system 'home' at byte 1080")));
  }
}

// I-CLI-1: the mount is what tells the person that it is the wrong device.
TEST(FormatDecision, no_option_makes_it_overwrite_what_is_in_use) {
  DeviceUse use = unused_device();
  use.reasons = {"is mounted on /home (ext4)"};
  for (const FormatRequest& request : {kPlain, kDestroy}) {
    EXPECT_THAT(refuse_format(request, use, store_contents()),
                Optional(HasSubstr("/dev/sdx is mounted on /home")));
  }
}

// I-CLI-1: raw databases, plain encryption and archives carry no signature.
TEST(FormatDecision, refuses_data_that_nobody_recognises) {
  DeviceContents contents;
  contents.data_at = 4096;
  EXPECT_THAT(refuse_format(kPlain, unused_device(), contents),
              Optional(HasSubstr("data at byte 4096")));
}

// Else a device whose format was interrupted could never be used again without other tools.
TEST(FormatDecision, an_interrupted_format_is_done_again) {
  DeviceContents contents;
  contents.data_at = 131072;
  contents.interrupted_format = true;
  EXPECT_EQ(refuse_format(kPlain, unused_device(), contents), std::nullopt);
}

// I-CLI-2
TEST(FormatDecision, a_store_needs_its_id_typed) {
  EXPECT_THAT(refuse_format(kPlain, unused_device(), store_contents()), Optional(HasSubstr(kId)));
  EXPECT_EQ(refuse_format(kDestroy, unused_device(), store_contents()), std::nullopt);
}

// I-CLI-2: the id of another device, a part of one, and nothing are all not this one.
TEST(FormatDecision, another_id_is_the_wrong_device) {
  for (const std::string& typed : {std::string("00000000-0000-4000-8000-000000000000"),
                                   kId.substr(0, 8), std::string(), kId + " "}) {
    const FormatRequest request{.destroy = true, .confirmed_id = typed};
    EXPECT_TRUE(refuse_format(request, unused_device(), store_contents())) << typed;
  }
}

// I-CLI-2: device names change between boots; who names a store means that store.
TEST(FormatDecision, a_typed_id_that_is_not_there_refuses_even_an_empty_device) {
  EXPECT_THAT(refuse_format(kDestroy, unused_device(), {}),
              Optional(HasSubstr("holds no Sarsen store")));
}

// An unreadable or newer superblock may be a healthy store of a later version.
TEST(FormatDecision, a_store_whose_id_cannot_be_read_is_refused) {
  DeviceContents contents = store_contents();
  contents.store->device_ids.clear();
  EXPECT_THAT(refuse_format(kDestroy, unused_device(), contents),
              Optional(HasSubstr("cannot be read")));
}

// A typed id names one store; the other one was not agreed to.
TEST(FormatDecision, superblocks_of_two_stores_are_refused) {
  DeviceContents contents = store_contents();
  contents.store->device_ids.push_back("another");
  EXPECT_THAT(refuse_format(kDestroy, unused_device(), contents),
              Optional(HasSubstr("different Sarsen stores")));
}

// /dev/disk/by-id names are what people type; what they resolve to is what is formatted.
TEST(FormatDecision, says_what_a_symbolic_link_leads_to) {
  DeviceUse use = unused_device();
  use.path = "/dev/disk/by-id/nvme-1";
  EXPECT_THAT(refuse_format(kPlain, use, store_contents()),
              Optional(HasSubstr("which is /dev/sdx")));
}

// "Says exactly what it would destroy."
TEST(FormatDecision, the_loss_names_the_store) {
  DeviceContents contents = store_contents();
  contents.store->newest->osd_id = 17;
  EXPECT_THAT(describe_loss(contents), HasSubstr("osd 17"));
  EXPECT_THAT(describe_loss({}), HasSubstr("nothing"));
}

}  // namespace
}  // namespace sarsen
