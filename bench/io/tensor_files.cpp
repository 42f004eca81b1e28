#include "tensor_files.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "tools/nvme/test_pattern.hpp"

namespace sluice::bench {

Result<TensorFiles> TensorFiles::make(const std::string& directory, std::uint64_t tensor_bytes,
                                      std::size_t count, std::span<std::byte> memory) {
  TensorFiles files;
  files.folder_ = fmt::format("{}/sluice-bench-{}-tensors", directory, getpid());
  files.tensor_bytes_ = tensor_bytes;
  files.memory_ = memory;
  std::error_code error;
  std::filesystem::create_directory(files.folder_, error);
  if (error) return status_from_errno(error.value(), "making " + files.folder_);
  tools::fill_with_noise(memory.first(tensor_bytes), 0);
  for (; files.count_ < count; ++files.count_) {
    const std::string path = fmt::format("{}/{}", files.folder_, files.count_);
    const io::Descriptor fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_DIRECT | O_CLOEXEC, 0600));
    if (fd.get() < 0) return status_from_errno(errno, "making " + path);
    tools::stamp(memory.first(tensor_bytes), {.drive = 0, .block = files.count_, .generation = 1});
    for (std::uint64_t done = 0; done < tensor_bytes;) {
      const ssize_t written =
          ::pwrite(fd.get(), memory.data() + done, tensor_bytes - done, static_cast<off_t>(done));
      if (written <= 0) return status_from_errno(written < 0 ? errno : EIO, "writing " + path);
      done += static_cast<std::uint64_t>(written);
    }
  }
  return files;
}

TensorFiles::TensorFiles(TensorFiles&& other) noexcept
    : folder_(std::exchange(other.folder_, {})),
      tensor_bytes_(other.tensor_bytes_),
      count_(other.count_),
      memory_(other.memory_) {}

TensorFiles::~TensorFiles() {
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

io::Descriptor TensorFiles::open(std::size_t index) const {
  return io::Descriptor(
      ::open(fmt::format("{}/{}", folder_, index).c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
}

Result<peers::Moved> TensorFiles::read_by_pread() const {
  const peers::CpuSeconds cpu_before = peers::process_cpu();
  const std::int64_t start_ns = peers::now_ns();
  for (std::size_t i = 0; i < count_; ++i) {
    const io::Descriptor fd = open(i);
    if (::pread(fd.get(), memory_.data(), tensor_bytes_, 0) != static_cast<ssize_t>(tensor_bytes_))
      return status_from_errno(errno, fmt::format("reading tensor {}", i));
  }
  return peers::Moved{.bytes = count_ * tensor_bytes_,
                      .seconds = static_cast<double>(peers::now_ns() - start_ns) * 1e-9,
                      .cpu = peers::process_cpu() - cpu_before,
                      .how = {}};
}

}  // namespace sluice::bench
