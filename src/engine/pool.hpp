// Many models of one spec, one for each key, each with the features and classes that its own rows
// have brought: it is the same as a model that learns the rows of its key alone.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>

#include "model.hpp"

namespace obax {

// The model of a key. Features and classes have a number of the pool's and one of the key's own, in
// the order in which its rows brought them.
struct Tenant {
    std::unique_ptr<Model> model;         // none before the first row, or while it is stored elsewhere
    std::vector<std::int32_t> features;   // the pool's number of each of its features
    std::vector<std::int32_t> own;        // its own number of each of the pool's features; -1 for none
    std::vector<std::int32_t> labels;     // the pool's number of each of its classes
    double given = 0, rejected = 0;
    double used = 0;  // the pool's clock when it was last needed
};

// Rows of a call, and what became of them.
struct PoolRows {
    const std::int64_t* tenants;
    std::size_t size;
    const double* values;  // of row i from values + i * row_stride on
    std::ptrdiff_t row_stride, stride;
    const std::int32_t* columns;  // the pool's number of each column
    std::size_t width;
    const std::int32_t* siblings;  // the column that has the first word of the same feature, or -1
    const double* targets;  // numbers, or the pool's numbers of classes; NaN where there is none
    const double* weights;
    std::size_t labels;  // that the pool knows
    const std::int32_t* implied;  // for each of them the one that comes with it; -1 for none
    bool learn;

    std::uint8_t* status;
    double* loss;
    double* predictions;  // a line of `labels` numbers, or one number
    double* trails;       // a line of x and shares in the layout of `trail`, or none
    const Plan* trail;

    RawRow raw(std::size_t i, const std::int32_t* index) const {
        return {values + static_cast<std::ptrdiff_t>(i) * row_stride, stride, index, width};
    }
};

class Pool {
  public:
    explicit Pool(Spec spec);

    const Spec& spec() const { return spec_; }
    std::size_t size() const { return tenants_.size(); }
    void add(std::size_t count) { tenants_.resize(tenants_.size() + count); }
    Tenant& operator[](std::size_t i) { return tenants_[i]; }
    const Tenant& operator[](std::size_t i) const { return tenants_[i]; }

    // Play rows, those of each key in their order, on so many threads. `stop` is asked on the
    // calling thread until all are done; once it is true no further row is begun.
    void play(const PoolRows& rows, std::size_t threads, const std::function<bool()>& stop);

    // Options for the models from now on.
    void change(const Spec& spec);

    // The plan of a model with so many features and classes, shared by all that have it.
    PlanPointer plan(std::size_t features, std::size_t classes);

    // A model with these features and classes of the pool that has learned nothing yet.
    Tenant empty_tenant(const std::vector<std::int32_t>& features,
                        const std::vector<std::int32_t>& labels);

  private:
    using Workspaces = std::map<const Plan*, std::unique_ptr<Workspace>>;

    void play_row(const PoolRows& rows, std::size_t i, Workspaces& workspaces,
                  std::vector<std::int32_t>& index, Vector& prediction);
    Workspace& workspace(const Model& model, Workspaces& workspaces);
    void learn_features(Tenant& tenant, const PoolRows& rows, std::size_t i);
    void learn_label(Tenant& tenant, std::int32_t label);
    void write_prediction(const PoolRows& rows, std::size_t i, const Tenant& tenant,
                          View prediction, std::size_t known) const;
    void write_trail(const PoolRows& rows, std::size_t i, const Tenant& tenant) const;

    Spec spec_;
    std::vector<Tenant> tenants_;
    std::map<std::pair<std::size_t, std::size_t>, PlanPointer> plans_;
    std::mutex plans_lock_;
    std::vector<Workspaces> workspaces_;  // of each thread
    double clock_ = 0;
};

}  // namespace obax
