// Lets a library release what its TORCH_LIBRARY blocks register, and register it again, so that a
// newer build of the same sources replaces an older one in the same process. A process that announces
// that it will ask for the error of a registration gets it; any other process ends, as with torch.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <vector>

namespace lltm_jit __attribute__((visibility("hidden"))) {  // each library has its own

  // One TORCH_LIBRARY block.
  class Registration {
   public:
    explicit Registration(const char* name_space) : name_space(name_space) {}
    virtual ~Registration() = default;
    virtual void put() const = 0;
    virtual void release() const = 0;
    const char* const name_space;
  };

  struct Registrations {
    // Registers a block when the library is loaded, unless one before it has failed.
    void add(const Registration* block) {
      all.push_back(block);
      if (!will_ask())
        block->put();
      else if (error.empty())
        attempt([&] { block->put(); });
    }

    // Whether the process says that it will ask for an error.
    static bool will_ask() {
      const char* process = std::getenv("_LLTM_JIT_LOADS_IN");  // as in loading/build.py
      return process && std::atol(process) == getpid();
    }

    void put_all() {
      release_all();
      error.clear();
      attempt([&] {
        for (auto* block : all) block->put();
      });
      if (!error.empty()) release_all();
    }

    void release_all() {
      for (auto block = all.rbegin(); block != all.rend(); ++block) (*block)->release();
    }

    template <typename F>
    void attempt(F action) {
      try {
        action();
      } catch (const std::exception& exception) {
        error = exception.what();
      }
    }

    std::vector<const Registration*> all;
    std::string error, namespaces;
  };

  inline Registrations& registrations() {
    static auto* all = new Registrations;  // never destroyed: blocks may outlive a static object
    return *all;
  }

  // Replaces torch's object for a block, and takes the same arguments.
  template <typename Library, typename Kind, typename Key>
  class Block final : public Registration {
   public:
    Block(Kind kind, void (*init)(Library&), const char* name_space, Key key, const char* file,
          uint32_t line)
        : Registration(name_space), kind_(kind), init_(init), key_(key), file_(file), line_(line) {
      registrations().add(this);
    }
    void put() const override {
      check();
      library_.emplace(kind_, name_space, key_, file_, line_);
      init_(*library_);
    }
    void release() const override { library_.reset(); }

   private:
    void check() const {}  // throws an error that the library would not report

    Kind kind_;
    void (*init_)(Library&);
    Key key_;
    const char* file_;
    uint32_t line_;
    mutable std::optional<Library> library_;
  };

}  // namespace lltm_jit

// What is wrong with the registrations; empty if all are in force.
extern "C" inline __attribute__((used, visibility("default"))) const char*
lltm_jit_registration_error() {
  return lltm_jit::registrations().error.c_str();
}

extern "C" inline __attribute__((used, visibility("default"))) void lltm_jit_register(int wanted) {
  auto& all = lltm_jit::registrations();
  wanted ? all.put_all() : all.release_all();
}

// The namespaces of the blocks, each followed by a blank.
extern "C" inline __attribute__((used, visibility("default"))) const char* lltm_jit_namespaces() {
  auto& all = lltm_jit::registrations();
  all.namespaces.clear();
  for (auto* block : all.all) all.namespaces += std::string(block->name_space) + ' ';
  return all.namespaces.c_str();
}
