#include "starling/kernel/await_terms.h"

#include <algorithm>
#include <atomic>

#include "starling/kernel/device.h"

namespace starling::kernel {

std::vector<Term> await_terms(std::span<const Term> terms) {
  const auto has_flag = [](const Term& term) { return term.flag != nullptr; };
  std::vector<Term> there(terms.begin(), terms.end());
  if (std::ranges::none_of(there, has_flag)) return there;
  for (const Term& term : there)
    if (has_flag(term)) device().wait(*term.flag, term.number);
  device().synchronize();
  const auto own = std::ranges::find_if_not(there, has_flag);
  for (Term& term : there) {
    if (!has_flag(term)) continue;
    if (arrived(term.flag->load(std::memory_order_acquire), term.number))
      term.flag = nullptr;
    else if (own != there.end())
      own->weight += term.weight;
  }
  std::erase_if(there, has_flag);
  return there;
}

}  // namespace starling::kernel
