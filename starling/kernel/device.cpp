#include "starling/kernel/device.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <mutex>
#include <string_view>
#include <unistd.h>

#include "starling/base/error.h"
#include "starling/base/plugin_search.h"
#include "starling/version.h"

namespace starling::kernel {
namespace {

using GetDevice = Device* (*)(DeviceContext& (*context)(), std::string* why);

struct Devices {
  std::mutex mutex;
  std::shared_ptr<Device> given;  // from set_device()
  Device* loaded = nullptr;       // the plugin's, which is never unloaded
  std::string why_not;            // after a failed attempt, which is not repeated
};

Devices& devices() {
  static Devices instance;
  return instance;
}

Device* load_device(std::string& why_not) {
  std::string path;
  try {
    path = find_plugin("starling_cuda", "the plugin for CUDA memory", "CUDA");
  } catch (const Error& error) {
    why_not = error.what();
    return nullptr;
  }
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    why_not = fmt::format("cannot load the plugin for CUDA memory: {}", dlerror());
    return nullptr;
  }
  const auto get = reinterpret_cast<GetDevice>(dlsym(handle, "starling_device"));
  const auto* version = static_cast<const char*>(dlsym(handle, "starling_device_version"));
  if (get == nullptr || version == nullptr) {
    why_not = path + " is not a device plugin of Starling";
    return nullptr;
  }
  if (std::string_view(version) != STARLING_VERSION) {
    why_not =
        fmt::format("{} belongs to Starling {}, but this program is Starling {}: install the matching plugin",
                    path, version, STARLING_VERSION);
    return nullptr;
  }
  return get(device_context, &why_not);
}

// Returns null with a reason if there is none.
Device* find_device(std::string& why_not) {
  Devices& all = devices();
  const std::lock_guard lock(all.mutex);
  if (all.given) return all.given.get();
  if (all.loaded == nullptr && all.why_not.empty()) all.loaded = load_device(all.why_not);
  why_not = all.why_not;
  return all.loaded;
}

}  // namespace

DeviceContext& device_context() {
  thread_local DeviceContext context;
  return context;
}

bool may_have_device() {
  Devices& all = devices();
  const std::lock_guard lock(all.mutex);
  return all.given != nullptr || access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0;
}

Device& device() {
  std::string why_not;
  if (Device* found = find_device(why_not)) return *found;
  throw Error("CUDA memory cannot be used: " + why_not);
}

std::string why_no_device() {
  std::string why_not;
  return find_device(why_not) == nullptr ? why_not : std::string();
}

std::string device_failure() {
  Devices& all = devices();
  const Device* used = nullptr;
  {
    const std::lock_guard lock(all.mutex);
    used = all.given ? all.given.get() : all.loaded;
  }
  return used == nullptr ? std::string() : used->failure();
}

const CodecKernels* codec_kernels_in(MemoryKind memory) {
  return memory == MemoryKind::host ? nullptr : device().codec_kernels();
}

void set_device(std::shared_ptr<Device> device) {
  Devices& all = devices();
  const std::lock_guard lock(all.mutex);
  all.given = std::move(device);
}

}  // namespace starling::kernel
