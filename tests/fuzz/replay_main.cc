// Runs a fuzz target once for each file of the folders named, so that the corpus is replayed where
// there is no libFuzzer (other presets, other compilers).
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

// Empty inputs are part of every corpus, and cannot be kept in the repository's folders.
std::size_t replay_folder(const std::filesystem::path& folder) {
  LLVMFuzzerTestOneInput(nullptr, 0);
  std::size_t count = 1;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    std::printf("%s\n", entry.path().filename().c_str());
    std::fflush(stdout);  // the name of an input that ends the process is its last line
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
    ++count;
  }
  return count;
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t count = 0;
  for (int i = 1; i < argc; ++i) count += replay_folder(argv[i]);
  std::printf("%zu inputs replayed\n", count);
  return count > 1 ? 0 : 1;
}
