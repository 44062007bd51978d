// An ensemble of trees that learn from the gradient of the loss, one row after another (after the
// stochastic gradient trees of Gouk, Pfahringer and Frank 2019).
//
// The ensemble predicts F = offset + the sum of a value of each tree: that of the leaf which the row
// falls into. All trees learn at F, from the gradient g and the curvature h of the row's loss there.
// The leaf of each tree moves by
//
//     value <- value - RATE w g / (H + PRIOR max(1, w)),
//
// where w is the weight of the row and H the sum of w h over the rows of the leaf, of which those
// more than about `memory` rows ago fade. Forgetting belongs to the leaves, not to the structure.
//
// A leaf counts w g and w h by bin of each of the tree's columns, which are a random half of all. Of
// every CHECKED rows it looks for the split with the largest gain in log-likelihood,
//
//     1/2 (G_l^2 / (H_l + PRIOR) + G_r^2 / (H_r + PRIOR) - G^2 / (H + PRIOR)),
//
// summed over outputs and, for regression, in units of the mean square of g. Above LEAST_GAIN it is
// made. A split sends a row to the left where low < value <= high: one side of an edge or, where a
// column has a few distinct values, one of them. A missing value goes where that gains most.
//
// A tree stops counting when it has MOST_LEAVES leaves; before that the counts take most of the
// memory, and no leaf is split for whose counts there is no room in `most_bytes`.
#pragma once

#include <cstdint>

#include "matrix.hpp"
#include "quantile_bins.hpp"

namespace obax {

struct TreeOptions {
    std::size_t columns = 0, outputs = 1;
    double memory = 100.0;
    std::uint64_t seed = 0;  // of the columns of each tree and of when leaves look for splits
    bool scaled = false;     // whether gains are in units of the mean square of g
    double most_bytes = 0;
    // For each column the number by which trees draw it, which stays when other columns come.
    std::vector<std::uint64_t> column_ids;
};

class GradientTrees {
  public:
    static constexpr std::size_t TREES = 30, MOST_LEAVES = 64;
    static constexpr double RATE = 0.1, PRIOR = 2.0, LEAST_GAIN = 5.0, CHECKED = 50.0;
    // On either side of a split there is more curvature.
    static constexpr double LEAST_CURVATURE = 0.5;
    // A row with more weight counts as one with this much.
    static constexpr double MOST_WEIGHT = 1e6;

    explicit GradientTrees(TreeOptions options);

    // Find the leaf of each tree and add their values to `outputs`.
    void predict(View values, std::uint32_t* leaves, Span outputs) const;

    // Learn a row from the gradient and the curvature of its loss at what `predict` gave. `bins` are
    // those of its values.
    void update(const std::uint32_t* leaves, const std::uint8_t* bins, const QuantileBins& edges,
                View gradient, View curvature, double weight);

    // Forget what was counted of columns whose bins have changed.
    void forget_bins(const std::vector<std::size_t>& columns);

    // The same trees where the old columns stand at `places`. `factors`: how outputs continue.
    GradientTrees resized(TreeOptions options, const std::vector<std::size_t>& places,
                          View factors) const;

    // Of each column the gain in log-likelihood that its splits brought.
    const Vector& gains() const { return gains_; }
    std::size_t leaves() const;
    double histogram_bytes() const { return histogram_bytes_; }

    void visit(Archive& archive, const std::string& name);

    // Bytes of the largest ensemble with these options.
    static double bytes(const TreeOptions& options);
    // Multiplications for a row, or what takes as long.
    static double cost(const TreeOptions& options);

  private:
    struct Node {
        std::int32_t column = -1;  // -1 for a leaf
        std::uint32_t left = 0;    // the right child is the next one
        bool missing_left = true;
        double low = 0, high = 0;
    };

    // What a leaf knows beside its values and curvatures.
    struct Leaf {
        double rows = 0;     // faded
        double waiting = 0;  // rows since it last looked for a split
        // For each of the tree's columns, bin and output the sums of w g and w h; empty until the
        // first row, and in a node that is none.
        std::vector<float> counts;
    };

    struct Tree {
        std::vector<std::uint16_t> columns;
        std::vector<Node> nodes;
        std::vector<Leaf> leaves;  // of each node
        Vector values, curvatures;  // a line of outputs for each node
        std::size_t leaf_count = 1;
    };

    struct Split {
        double gain;
        std::size_t place, column, bin;
        bool one_bin, missing_left;
    };

    Tree seedling(std::size_t number) const;
    std::size_t count_size(const Tree& tree) const;
    bool has_room(const Tree& tree) const;
    void free_counts(Tree& tree);
    void learn_leaf(Tree& tree, std::size_t node, const std::uint8_t* bins, double weight);
    Split best_split(const Tree& tree, std::size_t node, const QuantileBins& edges);
    void try_split(Tree& tree, std::size_t node, const QuantileBins& edges);
    bool in_left(const Split& split, std::size_t bin) const;

    TreeOptions options_;
    std::vector<Tree> trees_;
    Vector gains_;
    double mean_square_ = 0;  // of g
    double rows_ = 0;
    double histogram_bytes_ = 0;
    // Buffers of one row.
    Vector weighted_, sums_;
};

}  // namespace obax
