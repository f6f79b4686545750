#include "starling/fabric/mpi/engine.h"

#include <cstdlib>
#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include "starling/base/environment.h"
#include "starling/base/error.h"
#include "starling/base/forks.h"

namespace starling::fabric::mpi_engine {
namespace {

// Open MPI loads plugins, which need its symbols in the global scope.
void show_symbols() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&MPI_Init_thread), &info) != 0 && info.dli_fname != nullptr)
    dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
}

// STARLING_MPI_THREADS, for a library that is slow or wrong with several threads.
int wanted_level() {
  const std::string text = environment::kMpiThreads.text();
  if (text.empty() || text == "multiple") return MPI_THREAD_MULTIPLE;
  if (text == "serialized") return MPI_THREAD_SERIALIZED;
  throw InvalidArgument(fmt::format("STARLING_MPI_THREADS is '{}'; valid are: multiple, serialized", text));
}

}  // namespace

Engine& Engine::get() {
  static Engine* engine = new Engine;  // never destroyed: at_exit may run last
  int ended = 0;
  MPI_Finalized(&ended);
  if (ended != 0) throw Error("MPI was finalized in this process and cannot be initialized again");
  return *engine;
}

Engine::Engine() : forks_(forks_so_far()) {
  int ended = 0;
  MPI_Finalized(&ended);
  if (ended != 0) return;  // get() throws
  int started = 0;
  MPI_Initialized(&started);
  int level = MPI_THREAD_SINGLE;
  if (started != 0) {
    MPI_Query_thread(&level);
  } else {
    const int wanted = wanted_level();
    show_symbols();
    MPI_Init_thread(nullptr, nullptr, wanted, &level);
    started_here_ = true;
  }
  concurrent_ = level == MPI_THREAD_MULTIPLE;
  // call_lock() cannot serialize MPI calls of the program itself.
  if (!concurrent_ && (level != MPI_THREAD_SERIALIZED || !started_here_))
    throw Error(
        started_here_
            ? "this MPI library supports calls from one thread only; Starling needs a thread of its own"
            : "MPI was initialized with a thread level that is too low; call MPI_Init_thread "
              "with MPI_THREAD_MULTIPLE, or let Starling initialize MPI");
  std::atexit(at_exit);
}

std::unique_lock<std::mutex> Engine::call_lock() {
  return concurrent_ ? std::unique_lock<std::mutex>() : std::unique_lock(call_mutex_);
}

void Engine::add(EngineUser& user) {
  const std::lock_guard lock(users_mutex_);
  users_.insert(&user);
}

void Engine::remove(EngineUser& user) {
  const std::lock_guard lock(users_mutex_);
  users_.erase(&user);
}

void Engine::at_exit() {
  int ended = 0;
  MPI_Finalized(&ended);
  if (ended == 0) get().finish();
}

void Engine::finish() {
  if (forks_so_far() != forks_) return;  // the parent finalizes MPI
  const std::lock_guard lock(users_mutex_);
  for (EngineUser* user : users_) user->depart();
  if (started_here_) MPI_Finalize();
}

std::string library_text() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string whole(text, static_cast<std::size_t>(length));
  return whole.substr(0, whole.find_first_of(",\n"));
}

std::string error_text(int code) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  return {text, static_cast<std::size_t>(length)};
}

void check(int code, const char* what) {
  if (code != MPI_SUCCESS) throw Error(fmt::format("{}: {}", what, error_text(code)));
}

void end_job(Rank me, Rank lost, const std::string& why) {
  const std::string text =
      fmt::format("starling: rank {}: lost rank {} ({}); MPI cannot continue without it, aborting the job\n",
                  me, lost, why);
  static_cast<void>(!write(STDERR_FILENO, text.data(), text.size()));
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

}  // namespace starling::fabric::mpi_engine
