// Ranks that come later: two processes average a number, a third one comes in, and they go on as three.
//     starling run -n 2 --fabric c10d -- example_newcomer
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <starling/starling.h>
#include <sys/wait.h>
#include <unistd.h>

// Somebody starts another process of the job, on any host that reaches the store: with the variables of a
// rank (STARLING_JOB, STARLING_FABRIC, STARLING_STORE, STARLING_INTERFACE) and this one.
pid_t start_newcomer() {
  const pid_t child = fork();
  if (child != 0) return child;
  setenv("STARLING_ENTER", "1", 1);
  execl("/proc/self/exe", "example_newcomer", nullptr);
  _exit(127);
}

int main() {
  const char* rank = std::getenv("STARLING_RANK");
  const char* fabric = std::getenv("STARLING_FABRIC");
  if (rank == nullptr || fabric == nullptr) {
    std::cout << "start it with: starling run -n 2 --fabric c10d -- example_newcomer\n";
    return 0;
  }
  const bool later = std::getenv("STARLING_ENTER") != nullptr;
  const pid_t newcomer = !later && std::string(rank) == "0" ? start_newcomer() : -1;

  auto flock = starling::join();  // who comes later waits here
  flock.on_loss(starling::OnLoss::reweight);
  flock.set_schedule("ring");
  std::vector<double> x = {flock.entered() ? 100.0 : 1.0 + flock.rank()};
  while (flock.newcomers() == 0) {  // members work, and look outside now and then
    flock.neighbor_allreduce(x);
    flock = flock.welcome();  // the same flock, unless somebody has come
  }

  // From here on there is no difference between them.
  for (int k = 0; k < 60; ++k) flock.neighbor_allreduce(x);
  if (flock.rank() == 0)
    std::cout << flock.size() << " ranks, the last " << flock.newcomers() << " came later; they agree on "
              << x[0] << '\n';
  int status = 0;
  if (newcomer > 0) waitpid(newcomer, &status, 0);
  return std::abs(x[0] - 103.0 / 3) < 1e-9 && flock.size() == 3 && status == 0 ? 0 : 1;
}
