#include "gradient_trees.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>

namespace obax {

namespace {

constexpr std::size_t CELLS = QuantileBins::BINS + 1;  // bins, and one for missing values
constexpr double SQUARE_ROWS = 1000.0;
// What is drawn for the columns of trees, and for when they look for splits.
constexpr std::uint64_t FOR_COLUMNS = 1, FOR_WAITING = 2;
constexpr double MOST_ROWS = 9007199254740992.0;  // 2^53

double fit(double gradient, double curvature) {
    return gradient * gradient / (curvature + GradientTrees::PRIOR);
}

}  // namespace

GradientTrees::GradientTrees(TreeOptions options)
    : options_(std::move(options)),
      gains_(options_.columns, 0.0),
      weighted_(2 * options_.outputs),
      sums_(8 * options_.outputs) {
    for (std::size_t b = 0; b < TREES; ++b) trees_.push_back(seedling(b));
}

GradientTrees::Tree GradientTrees::seedling(std::size_t number) const {
    Tree tree;
    const std::uint64_t seed = options_.seed * 2 * TREES + number;
    for (std::size_t j = 0; j < options_.columns; ++j)
        if (hashed_uniform(seed, FOR_COLUMNS, options_.column_ids[j]) < 0.5)
            tree.columns.push_back(static_cast<std::uint16_t>(j));
    tree.nodes.resize(1);
    tree.leaves.resize(1);
    tree.leaves[0].waiting = -2.0 * CHECKED * hashed_uniform(seed, FOR_WAITING, 0);
    tree.values.assign(options_.outputs, 0.0);
    tree.curvatures.assign(options_.outputs, 0.0);
    return tree;
}

std::size_t GradientTrees::count_size(const Tree& tree) const {
    return tree.columns.size() * CELLS * options_.outputs * 2;
}

bool GradientTrees::has_room(const Tree& tree) const {
    return histogram_bytes_ + 4.0 * static_cast<double>(count_size(tree)) <= options_.most_bytes;
}

void GradientTrees::free_counts(Tree& tree) {
    for (Leaf& leaf : tree.leaves) {
        histogram_bytes_ -= 4.0 * static_cast<double>(leaf.counts.size());
        std::vector<float>().swap(leaf.counts);
    }
}

// ---- predicting and learning ----------------------------------------------------------------

void GradientTrees::predict(View values, std::uint32_t* leaves, Span outputs) const {
    const std::size_t count = outputs.size();
    for (std::size_t b = 0; b < TREES; ++b) {
        const Tree& tree = trees_[b];
        const Node* node = tree.nodes.data();
        while (node->column >= 0) {
            const double value = values[static_cast<std::size_t>(node->column)];
            const bool left = std::isnan(value) ? node->missing_left
                                                : node->low < value && value <= node->high;
            node = tree.nodes.data() + node->left + (left ? 0 : 1);
        }
        const auto leaf = static_cast<std::size_t>(node - tree.nodes.data());
        leaves[b] = static_cast<std::uint32_t>(leaf);
        const double* own = tree.values.data() + leaf * count;
        for (std::size_t k = 0; k < count; ++k) outputs[k] += own[k];
    }
}

void GradientTrees::update(const std::uint32_t* leaves, const std::uint8_t* bins,
                           const QuantileBins& edges, View gradient, View curvature,
                           double weight) {
    const double w = std::min(weight, MOST_WEIGHT);
    rows_ += 1.0;
    double square = 0.0;
    for (std::size_t k = 0; k < options_.outputs; ++k) {
        weighted_[2 * k] = w * gradient[k];
        weighted_[2 * k + 1] = w * curvature[k];
        square += gradient[k] * gradient[k];
    }
    mean_square_ += (square - mean_square_) / std::min(rows_, SQUARE_ROWS);
    for (std::size_t b = 0; b < TREES; ++b) {
        Tree& tree = trees_[b];
        learn_leaf(tree, leaves[b], bins, w);
        Leaf& leaf = tree.leaves[leaves[b]];
        if (leaf.waiting >= CHECKED && !leaf.counts.empty()) {
            leaf.waiting = 0.0;
            try {
                if (has_room(tree)) try_split(tree, leaves[b], edges);
            } catch (const std::bad_alloc&) {
                // The leaf stays as it is: a row is learned as a whole.
            }
        }
    }
}

void GradientTrees::learn_leaf(Tree& tree, std::size_t node, const std::uint8_t* bins,
                               double weight) {
    const std::size_t outputs = options_.outputs;
    Leaf& leaf = tree.leaves[node];
    double keep = 1.0;
    if (leaf.rows >= options_.memory) {
        keep = 1.0 - 1.0 / options_.memory;
        if (weight != 1.0) keep = std::pow(keep, weight);
    }
    const double prior = PRIOR * std::max(1.0, weight);
    double* values = tree.values.data() + node * outputs;
    double* curvatures = tree.curvatures.data() + node * outputs;
    for (std::size_t k = 0; k < outputs; ++k) {
        curvatures[k] = curvatures[k] * keep + weighted_[2 * k + 1];
        values[k] -= RATE * weighted_[2 * k] / (curvatures[k] + prior);
    }
    leaf.rows = leaf.rows * keep + weight;
    if (tree.leaf_count == MOST_LEAVES) return;
    leaf.waiting += weight;
    if (leaf.counts.empty()) {
        if (tree.columns.empty() || !has_room(tree)) return;
        try {
            leaf.counts.assign(count_size(tree), 0.0f);
        } catch (const std::bad_alloc&) {
            return;
        }
        histogram_bytes_ += 4.0 * static_cast<double>(leaf.counts.size());
    }
    float* counts = leaf.counts.data();
    for (std::size_t q = 0; q < tree.columns.size(); ++q) {
        float* cell = counts + (q * CELLS + bins[tree.columns[q]]) * outputs * 2;
        for (std::size_t k = 0; k < 2 * outputs; ++k) cell[k] += static_cast<float>(weighted_[k]);
    }
}

void GradientTrees::forget_bins(const std::vector<std::size_t>& columns) {
    for (Tree& tree : trees_) {
        const std::size_t size = CELLS * options_.outputs * 2;
        for (std::size_t q = 0; q < tree.columns.size(); ++q) {
            if (!std::binary_search(columns.begin(), columns.end(), tree.columns[q])) continue;
            for (Leaf& leaf : tree.leaves)
                if (!leaf.counts.empty())
                    std::fill_n(leaf.counts.begin() + static_cast<std::ptrdiff_t>(q * size), size,
                                0.0f);
        }
    }
}

// ---- splitting ----------------------------------------------------------------------------------

GradientTrees::Split GradientTrees::best_split(const Tree& tree, std::size_t node,
                                               const QuantileBins& edges) {
    const std::size_t outputs = options_.outputs;
    const float* counts = tree.leaves[node].counts.data();
    const double unit = options_.scaled && mean_square_ > 0.0 ? mean_square_ : 1.0;
    Split best{LEAST_GAIN, 0, 0, 0, false, true};
    double *total = sums_.data(), *missing = total + 2 * outputs, *left = total + 4 * outputs,
           *one = total + 6 * outputs;
    bool found = false;
    for (std::size_t q = 0; q < tree.columns.size(); ++q) {
        const std::size_t column = tree.columns[q], bins = edges.bins(column);
        const float* cells = counts + q * CELLS * outputs * 2;
        std::fill_n(total, 6 * outputs, 0.0);
        for (std::size_t k = 0; k < 2 * outputs; ++k) {
            missing[k] = cells[QuantileBins::MISSING * outputs * 2 + k];
            total[k] = missing[k];
        }
        for (std::size_t z = 0; z < bins; ++z)
            for (std::size_t k = 0; k < 2 * outputs; ++k)
                total[k] += cells[z * outputs * 2 + k];
        double whole = 0.0, lost = 0.0;
        for (std::size_t k = 0; k < outputs; ++k) {
            whole += fit(total[2 * k], total[2 * k + 1]);
            lost += missing[2 * k + 1];
        }
        // Consider a split whose left side has these sums, with and without the missing values.
        const auto consider = [&](const double* side, std::size_t bin, bool one_bin) {
            for (const bool with_missing : {false, true}) {
                if (with_missing && !(lost > 0.0)) break;
                double score = 0.0, here = 0.0, there = 0.0;
                for (std::size_t k = 0; k < outputs; ++k) {
                    const double g = side[2 * k] + (with_missing ? missing[2 * k] : 0.0);
                    const double h = side[2 * k + 1] + (with_missing ? missing[2 * k + 1] : 0.0);
                    const double other = total[2 * k + 1] - h;
                    here += h;
                    there += other;
                    score += fit(g, h) + fit(total[2 * k] - g, other);
                }
                const double gain = 0.5 * (score - whole) / unit;
                if (gain > best.gain && here > LEAST_CURVATURE && there > LEAST_CURVATURE) {
                    // What never was missing goes with the larger side.
                    const bool to_left = lost > 0.0 ? with_missing : here >= there;
                    best = {gain, q, column, bin, one_bin, to_left};
                    found = true;
                }
            }
        };
        for (std::size_t z = 0; z + 1 < bins; ++z) {
            const float* cell = cells + z * outputs * 2;
            for (std::size_t k = 0; k < 2 * outputs; ++k) left[k] += cell[k];
            consider(left, z, false);
            if (z == 0 || !edges.distinct(column)) continue;
            for (std::size_t k = 0; k < 2 * outputs; ++k) one[k] = cell[k];
            consider(one, z, true);
        }
    }
    if (!found) best.gain = 0.0;
    return best;
}

bool GradientTrees::in_left(const Split& split, std::size_t bin) const {
    if (bin == QuantileBins::MISSING) return split.missing_left;
    return split.one_bin ? bin == split.bin : bin <= split.bin;
}

void GradientTrees::try_split(Tree& tree, std::size_t node, const QuantileBins& edges) {
    const Split split = best_split(tree, node, edges);
    if (!(split.gain > 0.0)) return;
    const std::size_t outputs = options_.outputs, left = tree.nodes.size();
    // All memory first: what follows cannot fail.
    std::vector<float> counts;
    const bool last = tree.leaf_count + 1 == MOST_LEAVES;
    if (!last) counts.assign(count_size(tree), 0.0f);
    const auto reserve = [](auto& values, std::size_t size) {
        if (size > values.capacity()) values.reserve(2 * size);
    };
    reserve(tree.nodes, left + 2);
    reserve(tree.leaves, left + 2);
    reserve(tree.values, (left + 2) * outputs);
    reserve(tree.curvatures, (left + 2) * outputs);
    tree.nodes.resize(left + 2);
    tree.leaves.resize(left + 2);
    tree.values.resize((left + 2) * outputs);
    tree.curvatures.resize((left + 2) * outputs);

    std::fill(sums_.begin(), sums_.end(), 0.0);
    double *sides[2] = {sums_.data(), sums_.data() + 2 * outputs};
    const float* cells = tree.leaves[node].counts.data() + split.place * CELLS * outputs * 2;
    for (std::size_t z = 0; z < CELLS; ++z) {
        double* side = sides[in_left(split, z) ? 0 : 1];
        for (std::size_t k = 0; k < 2 * outputs; ++k) side[k] += cells[z * outputs * 2 + k];
    }
    for (std::size_t child = 0; child < 2; ++child) {
        const double* side = sides[child];
        tree.leaves[left + child].rows = 0.5 * tree.leaves[node].rows;
        for (std::size_t k = 0; k < outputs; ++k) {
            const double h = std::max(side[2 * k + 1], 0.0);
            tree.curvatures[(left + child) * outputs + k] = h;
            tree.values[(left + child) * outputs + k] =
                tree.values[node * outputs + k] - RATE * side[2 * k] / (h + PRIOR);
        }
    }
    Node& parent = tree.nodes[node];
    parent.column = static_cast<std::int32_t>(split.column);
    parent.left = static_cast<std::uint32_t>(left);
    parent.missing_left = split.missing_left;
    parent.low = split.one_bin ? edges.low(split.column, split.bin)
                               : std::numeric_limits<double>::lowest();
    parent.high = edges.high(split.column, split.bin);
    // As a part of the loss: later splits, of small errors, count less than the first ones.
    gains_[split.column] += split.gain * (options_.scaled ? mean_square_ : 1.0);
    tree.leaf_count += 1;
    if (last) {
        free_counts(tree);
        return;
    }
    tree.leaves[left].counts = std::move(tree.leaves[node].counts);
    tree.leaves[node].counts = {};
    std::fill(tree.leaves[left].counts.begin(), tree.leaves[left].counts.end(), 0.0f);
    tree.leaves[left + 1].counts = std::move(counts);
    histogram_bytes_ += 4.0 * static_cast<double>(count_size(tree));
}

// ---- growing and looking --------------------------------------------------------------------------

GradientTrees GradientTrees::resized(TreeOptions options, const std::vector<std::size_t>& places,
                                     View factors) const {
    GradientTrees larger(std::move(options));
    const std::size_t from = options_.outputs, to = larger.options_.outputs;
    // An output of the larger ensemble is a multiple of one of this one.
    const bool halves = factors.size() == 2 && factors[0] < 0.0;
    const auto source = [&](std::size_t k) { return halves ? 0 : k; };
    larger.rows_ = rows_;
    larger.mean_square_ = mean_square_;
    for (std::size_t j = 0; j < gains_.size(); ++j) larger.gains_[places[j]] = gains_[j];
    for (std::size_t b = 0; b < TREES; ++b) {
        const Tree& old = trees_[b];
        Tree& tree = larger.trees_[b];
        tree.nodes = old.nodes;
        tree.leaf_count = old.leaf_count;
        for (Node& node : tree.nodes)
            if (node.column >= 0)
                node.column =
                    static_cast<std::int32_t>(places[static_cast<std::size_t>(node.column)]);
        tree.leaves.assign(old.nodes.size(), Leaf());
        tree.values.assign(old.nodes.size() * to, 0.0);
        tree.curvatures.assign(old.nodes.size() * to, 0.0);
        for (std::size_t i = 0; i < old.nodes.size(); ++i) {
            const Leaf& was = old.leaves[i];
            Leaf& leaf = tree.leaves[i];
            leaf.rows = was.rows;
            leaf.waiting = was.waiting;
            for (std::size_t k = 0; k < factors.size(); ++k) {
                tree.values[i * to + k] = factors[k] * old.values[i * from + source(k)];
                tree.curvatures[i * to + k] = old.curvatures[i * from + source(k)];
            }
            if (was.counts.empty() || !larger.has_room(tree)) continue;
            leaf.counts.assign(larger.count_size(tree), 0.0f);
            larger.histogram_bytes_ += 4.0 * static_cast<double>(leaf.counts.size());
            for (std::size_t q = 0; q < old.columns.size(); ++q) {
                const auto place = static_cast<std::uint16_t>(places[old.columns[q]]);
                const auto at = std::lower_bound(tree.columns.begin(), tree.columns.end(), place);
                if (at == tree.columns.end() || *at != place) continue;
                const auto r = static_cast<std::size_t>(at - tree.columns.begin());
                for (std::size_t z = 0; z < CELLS; ++z)
                    for (std::size_t k = 0; k < factors.size(); ++k) {
                        const float* cell = was.counts.data() +
                                            ((q * CELLS + z) * from + source(k)) * 2;
                        float* target = leaf.counts.data() + ((r * CELLS + z) * to + k) * 2;
                        target[0] = halves ? (k == 0 ? -cell[0] : cell[0]) : cell[0];
                        target[1] = cell[1];
                    }
            }
        }
    }
    return larger;
}

std::size_t GradientTrees::leaves() const {
    std::size_t count = 0;
    for (const Tree& tree : trees_) count += tree.leaf_count;
    return count;
}

double GradientTrees::bytes(const TreeOptions& options) {
    constexpr double nodes = static_cast<double>(TREES * (2 * MOST_LEAVES - 1));
    const auto outputs = static_cast<double>(options.outputs);
    const double columns = static_cast<double>(options.columns);
    const double counts = 4.0 * columns * static_cast<double>(CELLS * 2 * TREES * MOST_LEAVES) * outputs;
    return std::min(counts, options.most_bytes) + 8.0 * columns +
           nodes * (static_cast<double>(sizeof(Node) + sizeof(Leaf)) + 16.0 * outputs) +
           static_cast<double>(TREES) * (static_cast<double>(sizeof(Tree)) + 2.0 * columns);
}

double GradientTrees::cost(const TreeOptions& options) {
    const auto numbers = static_cast<double>(options.columns * options.outputs);
    return static_cast<double>(TREES) * (60.0 + 14.0 * numbers);
}

void GradientTrees::visit(Archive& archive, const std::string& name) {
    constexpr std::size_t WIDTH = 7;  // of a node's line
    const std::size_t outputs = options_.outputs, most = TREES * (2 * MOST_LEAVES - 1);
    Vector sizes, nodes, values, curvatures, counts;
    for (const Tree& tree : trees_) {
        sizes.push_back(static_cast<double>(tree.nodes.size()));
        for (std::size_t i = 0; i < tree.nodes.size(); ++i) {
            const Node& node = tree.nodes[i];
            const Leaf& leaf = tree.leaves[i];
            for (double number :
                 {static_cast<double>(node.column), static_cast<double>(node.left),
                  node.missing_left ? 1.0 : 0.0, node.low, node.high, leaf.rows, leaf.waiting})
                nodes.push_back(number);
            counts.push_back(static_cast<double>(leaf.counts.size()));
            counts.insert(counts.end(), leaf.counts.begin(), leaf.counts.end());
        }
        values.insert(values.end(), tree.values.begin(), tree.values.end());
        curvatures.insert(curvatures.end(), tree.curvatures.begin(), tree.curvatures.end());
    }
    archive.array(name + ".sizes", sizes, {TREES}, Rule::not_negative);
    archive.list(name + ".nodes", nodes, most * WIDTH);
    archive.list(name + ".values", values, most * outputs);
    archive.list(name + ".curvatures", curvatures, most * outputs, Rule::not_negative);
    std::size_t largest = 0;
    for (const Tree& tree : trees_) largest += MOST_LEAVES * count_size(tree);
    archive.list(name + ".counts", counts, most + largest);
    archive.array(name + ".gains", gains_, {gains_.size()}, Rule::not_negative);
    archive.number(name + ".mean_square", mean_square_, Rule::not_negative);
    archive.number(name + ".rows", rows_);
    archive.require_whole(rows_, 0.0, MOST_ROWS, name + ".rows");
    if (!archive.reading()) return;

    std::size_t total = 0;
    for (double size : sizes) {
        archive.require_whole(size, 1.0, 2 * MOST_LEAVES - 1, name + ".sizes");
        total += static_cast<std::size_t>(size);
    }
    archive.require(nodes.size() == total * WIDTH, name + ".nodes", "a line for each node");
    archive.require(values.size() == total * outputs && curvatures.size() == total * outputs,
                    name + ".values", "a line for each node");
    std::vector<Tree> trees;
    std::size_t at = 0, count_at = 0;
    histogram_bytes_ = 0.0;
    for (std::size_t b = 0; b < TREES; ++b) {
        Tree tree = seedling(b);
        const auto size = static_cast<std::size_t>(sizes[b]);
        archive.require(size % 2 == 1, name + ".sizes", "odd");
        tree.nodes.assign(size, Node());
        tree.leaves.assign(size, Leaf());
        tree.leaf_count = (size + 1) / 2;
        std::vector<bool> has_parent(size, false);
        for (std::size_t i = 0; i < size; ++i, ++at) {
            const double* line = nodes.data() + at * WIDTH;
            Node& node = tree.nodes[i];
            archive.require_whole(line[0], -1.0, static_cast<double>(options_.columns) - 1.0,
                                  name + ".nodes");
            archive.require_whole(line[2], 0.0, 1.0, name + ".nodes");
            archive.require(line[5] >= 0.0, name + ".nodes", "rows >= 0");
            archive.require(i == 0 || has_parent[i], name + ".nodes", "a tree");
            node.column = static_cast<std::int32_t>(line[0]);
            node.missing_left = line[2] > 0.0;
            node.low = line[3];
            node.high = line[4];
            tree.leaves[i].rows = line[5];
            tree.leaves[i].waiting = line[6];
            if (node.column >= 0) {
                archive.require_whole(line[1], static_cast<double>(i) + 1.0,
                                      static_cast<double>(size) - 2.0, name + ".nodes");
                node.left = static_cast<std::uint32_t>(line[1]);
                archive.require(!has_parent[node.left] && !has_parent[node.left + 1],
                                name + ".nodes", "a tree");
                has_parent[node.left] = has_parent[node.left + 1] = true;
            } else {
                archive.require(line[1] == 0.0, name + ".nodes", "a tree");
            }
            archive.require(count_at < counts.size(), name + ".counts", "counts of each node");
            const double length = counts[count_at++];
            const bool may = node.column < 0 && tree.leaf_count < MOST_LEAVES;
            archive.require(length == 0.0 ||
                                (may && length == static_cast<double>(count_size(tree))),
                            name + ".counts", "as many as a leaf has");
            const auto n = static_cast<std::size_t>(length);
            archive.require(counts.size() - count_at >= n, name + ".counts",
                            "as many as a leaf has");
            for (std::size_t j = 0; j < n; ++j) {
                const double one = counts[count_at + j];
                archive.require(std::abs(one) <= std::numeric_limits<float>::max() &&
                                    (j % 2 == 0 || one >= 0.0),
                                name + ".counts", "sums of single precision");
                tree.leaves[i].counts.push_back(static_cast<float>(one));
            }
            histogram_bytes_ += 4.0 * length;
            count_at += n;
        }
        const std::size_t begin = (at - size) * outputs, end = at * outputs;
        tree.values.assign(values.begin() + static_cast<std::ptrdiff_t>(begin),
                           values.begin() + static_cast<std::ptrdiff_t>(end));
        tree.curvatures.assign(curvatures.begin() + static_cast<std::ptrdiff_t>(begin),
                               curvatures.begin() + static_cast<std::ptrdiff_t>(end));
        trees.push_back(std::move(tree));
    }
    archive.require(count_at == counts.size(), name + ".counts", "counts of each node");
    trees_ = std::move(trees);
}

}  // namespace obax
