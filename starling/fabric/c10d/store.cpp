#include "starling/fabric/c10d/store.h"

#include <memory>

#include "starling/fabric/network/store/client.h"

namespace starling::fabric::c10d_engine {
namespace {

/// A torch store that forwards to the launcher's store. Thread-safe, like StoreClient.
class TokenStore final : public ::c10d::Store {
 public:
  TokenStore(std::shared_ptr<network::StoreClient> client, std::chrono::milliseconds timeout)
      : Store(timeout), client_(std::move(client)) {}

  void set(const std::string& key, const StoreBytes& value) override { client_->set(key, text_of(value)); }
  StoreBytes get(const std::string& key) override { return bytes_of(client_->get(key, limit(timeout_))); }
  std::int64_t add(const std::string& key, std::int64_t value) override { return client_->add(key, value); }
  StoreBytes compareSet(const std::string& key, const StoreBytes& expected,
                        const StoreBytes& desired) override {
    return bytes_of(client_->compare_set(key, text_of(expected), text_of(desired)));
  }
  bool deleteKey(const std::string& key) override { return client_->remove(key); }
  bool check(const std::vector<std::string>& keys) override { return client_->check(keys); }
  std::int64_t getNumKeys() override { return client_->count(); }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    client_->wait(keys, limit(timeout));
  }
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 8)
  StorePtr clone() override {
    return c10::make_intrusive<TokenStore>(client_, timeout_);
  }
#endif

 private:
  // Zero means no limit in torch; the wait then ends only if the store goes away.
  static std::chrono::milliseconds limit(std::chrono::milliseconds timeout) {
    return timeout.count() > 0 ? timeout : std::chrono::hours(24 * 365);
  }

  std::shared_ptr<network::StoreClient> client_;
};

}  // namespace

StorePtr make_token_store(const std::string& where, const std::string& token,
                          std::chrono::milliseconds timeout) {
  return c10::make_intrusive<TokenStore>(std::make_shared<network::StoreClient>(where, token, timeout),
                                         timeout);
}

}  // namespace starling::fabric::c10d_engine
