#include "module_model.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "bulk.hpp"
#include "model.hpp"
#include "python_arrays.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace obax {

namespace {

constexpr double MISSING = std::numeric_limits<double>::quiet_NaN();

// For each new feature the one that it is another word of; less than 0 for none.
using Siblings = std::vector<std::ptrdiff_t>;

// A value of a feature as a number; false if it is anything but None, a number or a boolean.
bool read_number(PyObject* value, double& out) {
    if (PyFloat_CheckExact(value)) {
        out = PyFloat_AS_DOUBLE(value);
    } else if (PyLong_CheckExact(value)) {
        out = PyLong_AsDouble(value);
        if (out == -1.0 && PyErr_Occurred()) {
            PyErr_Clear();
            return false;
        }
    } else if (PyBool_Check(value)) {
        out = value == Py_True ? 1.0 : 0.0;
    } else if (value == Py_None) {
        out = MISSING;
    } else if (PyFloat_Check(value)) {
        out = PyFloat_AS_DOUBLE(value);
    } else {
        return false;
    }
    return true;
}

// The index that a dict has for a key; -1 if it has none, -2 if the key cannot be looked up.
std::ptrdiff_t index_of(PyObject* dict, PyObject* key) {
    PyObject* found = PyDict_GetItemWithError(dict, key);
    if (found) return PyLong_AsSsize_t(found);
    if (!PyErr_Occurred()) return -1;
    PyErr_Clear();
    return -2;
}

class PythonModel {
  public:
    explicit PythonModel(const Spec& spec)
        : model_(make_plan(spec)), work_(*model_.plan()) {
        if (spec.features != 0 || spec.classes != 0)
            throw std::invalid_argument("features and classes come by grow().");
    }

    PythonModel(const PythonModel& other)
        : model_(other.model_.copy()),
          work_(*model_.plan()),
          names_(other.names_),
          columns_(nb::steal<nb::dict>(PyDict_Copy(other.columns_.ptr()))),
          labels_(other.labels_),
          label_index_(nb::steal<nb::dict>(PyDict_Copy(other.label_index_.ptr()))),
          label_weights_(other.label_weights_),
          weights_by_label_(other.weights_by_label_),
          given_(other.given_) {}

    // While it lives, no other call may use the model: a second thread, or a signal handler during
    // a call, gets an error.
    class Use {
      public:
        explicit Use(const PythonModel& model) : model_(model) {
            if (model.busy_)
                throw std::runtime_error(
                    "this model is in use by another call; calls from several threads need a lock.");
            model.busy_ = true;
        }
        ~Use() { model_.busy_ = false; }
        Use(const Use&) = delete;
        Use& operator=(const Use&) = delete;

      private:
        const PythonModel& model_;
    };

    const Model& model() const { return model_; }
    const Spec& spec() const { return model_.plan()->spec; }
    nb::dict columns() const { return columns_; }
    nb::dict label_index() const { return label_index_; }
    double given() const { return given_; }
    void count_given(double rows) { given_ += rows; }

    nb::list names() const { return copy_list(names_); }
    nb::list labels() const { return copy_list(labels_); }

    // ---- growing ----

    void grow(nb::sequence names, nb::sequence labels, bool sparse, const Spec* options,
              const Siblings& siblings) {
        const Use use(*this);
        extend(names, labels, sparse, options, siblings);
    }

    void change(const Spec& options) {
        const Use use(*this);
        Spec changed = options;
        changed.features = spec().features;
        changed.classes = spec().classes;
        changed.sparse = spec().sparse;
        replace(model_.resized(make_plan(changed), model_.features()));
    }

    void set_label_weights(nb::object weights) {
        const Use use(*this);
        Vector values = weights_of(weights, labels_);
        weights_by_label_ = weights;
        label_weights_ = std::move(values);
    }
    nb::object label_weights() const { return weights_by_label_; }

    // ---- one row ----

    int learn(nb::handle row, nb::handle y, double weight) {
        const Use use(*this);
        double target;
        if (!read_target(y.ptr(), target)) return UNREADABLE;
        if (spec().classifies() && !label_weights_.empty())
            weight *= label_weights_[static_cast<std::size_t>(target)];
        if (!(weight > 0.0) || !read_row(row.ptr(), false)) return UNREADABLE;
        prediction_.resize(model_.plan()->predictions);
        const Outcome outcome = model_.step(raw_row(), target, weight, work_, prediction_);
        if (outcome.status != Status::extreme) given_ += 1.0;
        return static_cast<int>(outcome.status);
    }

    nb::object predict(nb::handle row) {
        const Use use(*this);
        if (!read_row(row.ptr(), spec().sparse)) return nb::none();
        prediction_.resize(model_.plan()->predictions);
        model_.predict(raw_row(), work_, prediction_);
        const std::size_t count = spec().classifies() ? spec().classes : 1;
        PyObject* list = PyList_New(static_cast<Py_ssize_t>(count));
        if (!list) throw nb::python_error();
        for (std::size_t i = 0; i < count; ++i) {
            PyObject* value = PyFloat_FromDouble(prediction_[i]);
            if (!value) {
                Py_DECREF(list);
                throw nb::python_error();
            }
            PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), value);
        }
        return nb::steal(list);
    }

    // Probabilities by label; while one class alone is known, None has that of another one.
    nb::object predict_proba(nb::handle row) {
        const Use use(*this);
        if (!spec().classifies() || !read_row(row.ptr(), spec().sparse)) return nb::none();
        nb::dict found;
        const std::size_t classes = spec().classes;
        if (classes == 0) return found;
        prediction_.resize(model_.plan()->predictions);
        model_.predict(raw_row(), work_, prediction_);
        for (std::size_t i = 0; i < classes; ++i)
            found[labels_[i]] = nb::float_(prediction_[i]);
        if (classes == 1) found[nb::none()] = nb::float_(1.0 - prediction_[0]);
        return found;
    }

    // What each member predicts: a line of probabilities, or a number in deviations of the target.
    nb::object predict_members(nb::handle row) {
        const Use use(*this);
        if (!read_row(row.ptr(), spec().sparse)) return nb::none();
        const Plan& plan = *model_.plan();
        prediction_.resize(plan.predictions);
        model_.predict(raw_row(), work_, prediction_);
        Vector lines;
        for (const MemberWork& member : work_.members)
            lines.insert(lines.end(), member.prediction.begin(), member.prediction.end());
        for (std::size_t i = 1; i < plan.auto_members; ++i) {
            Vector line = work_.beside->members[i].prediction;
            const RunningMoments& target = model_.target_moments();
            if (!plan.classifies)
                line[0] = target.variance > 0.0 ? (line[0] - target.mean) / std::sqrt(target.variance)
                                                : 0.0;
            lines.insert(lines.end(), line.begin(), line.end());
        }
        return to_numpy(lines, {spec().all_names().size(), plan.predictions});
    }

    // ---- many rows ----

    nb::tuple play(const BulkRows& rows, Doubles targets, Doubles weights, nb::sequence new_labels,
                   bool trace, double coverage) {
        const Use use(*this);
        const std::size_t n = rows.size();
        if (targets.shape(0) != n || weights.shape(0) != n)
            throw std::invalid_argument("targets and weights must be as many as rows.");
        const std::size_t before = spec().classes, more = nb::len(new_labels);
        const std::size_t known = before + more;
        if (!spec().classifies() && more > 0)
            throw std::invalid_argument("a regression has no labels.");
        check_targets(targets, weights, known);
        const Vector factors = label_weights_.empty() && weights_by_label_.is_none()
                                   ? Vector()
                                   : weights_of(weights_by_label_, joined(labels_, new_labels));

        Spec last = spec();
        last.classes = known;
        const Plan final_plan(last);
        const std::size_t columns = spec().classifies() ? known : 1;
        Bulk bulk(n, columns, trace ? final_plan.trail : 0);
        const std::size_t position = coverage > 0.0 ? keep(coverage) : MOST_COVERAGES;
        Clock clock(model_.cost(final_plan, n > 0 ? rows[0].size : 0));
        {
            const NewLabels met(*this, new_labels, factors);
            const nb::gil_scoped_release release;
            for (std::size_t i = 0; i < n; ++i) {
                double weight = weights(i);
                const double target = targets(i);
                if (!factors.empty() && !std::isnan(target) && target >= 0.0)
                    weight *= factors[static_cast<std::size_t>(target)];
                play_row(rows, i, target, weight, position, final_plan, bulk);
                if (clock.is_time()) look_for_signals();
            }
        }
        return bulk.as_tuple();
    }

    nb::object predict_many(const BulkRows& rows) {
        const Use use(*this);
        const std::size_t columns = spec().classifies() ? spec().classes : 1;
        Bulk bulk(rows.size(), columns, 0);
        {
            const nb::gil_scoped_release release;
            Clock clock(model_.cost(*model_.plan(), rows.size() > 0 ? rows[0].size : 0));
            prediction_.resize(model_.plan()->predictions);
            for (std::size_t i = 0; i < rows.size(); ++i) {
                model_.predict(rows[i], work_, prediction_);
                bulk.write_prediction(i, prediction_);
                if (clock.is_time()) look_for_signals();
            }
        }
        return bulk.predictions();
    }

    // ---- looking at it ----

    nb::object x() const {
        const Use use(*this);
        Vector trail(model_.plan()->trail);
        model_.write_trail(trail);
        return to_numpy(trail, {trail.size()});
    }

    // About how many multiplications a row costs: of the linear members together, of each block and
    // of each ensemble of trees.
    nb::object costs() const {
        const Use use(*this);
        const AutoMembers* beside = model_.beside();
        const Vector costs = beside ? beside->costs() : Vector{model_.cost()};
        return to_numpy(costs, {costs.size()});
    }

    // The names of the members that sleep.
    nb::list asleep() const {
        const Use use(*this);
        nb::list found;
        const auto names = spec().all_names();
        for (std::size_t i = 1; i < model_.plan()->auto_members; ++i)
            if (model_.beside()->asleep(i)) found.append(names[spec().members() + i - 1]);
        return found;
    }

    // What the splits of trees gained in log-likelihood, by feature.
    nb::object gains() const {
        const Use use(*this);
        Vector gains(model_.features(), 0.0);
        if (model_.beside())
            for (const GradientTrees& trees : model_.beside()->trees())
                for (std::size_t j = 0; j < gains.size(); ++j) gains[j] += trees.gains()[j];
        return to_numpy(gains, {gains.size()});
    }

    nb::object centre() {
        const Use use(*this);
        const Matrix centre = model_.centre(work_);
        return to_numpy(centre.flat(), {centre.rows(), centre.columns()});
    }

    nb::tuple history() const {
        const Use use(*this);
        const History& history = model_.history();
        return nb::make_tuple(to_numpy_integers(history.rows()),
                              to_numpy(history.losses(), {history.size()}),
                              to_numpy(history.trails(), {history.size(), history.width()}));
    }

    nb::dict coverages() const {
        const Use use(*this);
        nb::dict found;
        for (const auto& one : model_.scores().coverages())
            found[nb::float_(one.coverage)] =
                nb::float_(one.learned > 0.0 ? one.covered / one.learned : MISSING);
        return found;
    }

    double reach(double coverage) {
        const Use use(*this);
        return model_.scores().reach(keep(coverage));
    }

    // ---- saving and loading ----

    nb::dict state() {
        const Use use(*this);
        NamedArrays arrays;
        Archive archive = Archive::writer(arrays);
        model_.visit(archive);
        nb::dict found;
        for (const auto& [name, array] : arrays)
            found[name.c_str()] = to_numpy(array.values, array.shape);
        found["given"] = nb::float_(given_);
        return found;
    }

    static PythonModel restore(const Spec& options, nb::sequence names, nb::sequence labels,
                               nb::dict state) {
        Spec empty = options;
        empty.features = empty.classes = 0;
        const bool sparse = options.sparse;
        PythonModel restored(empty);
        restored.extend(names, labels, sparse, nullptr, {});
        NamedArrays arrays;
        for (const auto& [name, value] : state) {
            if (!nb::isinstance<nb::str>(name))
                throw std::invalid_argument("parts of a state must have names.");
            const auto word = nb::cast<std::string>(name);
            if (word == "given") continue;
            arrays[word] = from_numpy(word, value);
        }
        double given = 0.0;
        if (!state.contains("given") || !read_number(nb::object(state["given"]).ptr(), given) ||
            !(given >= 0.0 && given <= 9007199254740992.0 && given == std::floor(given)))
            throw std::invalid_argument("given must be a number of rows; the file is damaged.");
        Archive archive = Archive::reader(arrays);
        restored.model_.visit(archive);
        if (given < restored.model_.history().rows_learned())
            throw std::invalid_argument(
                "given must be no less than the rows learned; the file is damaged.");
        restored.given_ = given;
        restored.work_.reset();
        return restored;
    }

    PythonModel(PythonModel&&) noexcept = default;

  private:
    static nb::list copy_list(const nb::list& list) {
        return nb::steal<nb::list>(PyList_GetSlice(list.ptr(), 0, PyList_GET_SIZE(list.ptr())));
    }

    static nb::list joined(const nb::list& list, nb::handle more) {
        nb::list both = copy_list(list);
        for (nb::handle one : more) both.append(one);
        return both;
    }

    // A dict with an index for each entry of a list; an error if one is there twice.
    static nb::dict indices(const nb::list& list, const char* what) {
        nb::dict found;
        Py_ssize_t i = 0;
        for (nb::handle one : list) {
            const int known = PyDict_Contains(found.ptr(), one.ptr());
            if (known < 0) throw nb::python_error();
            if (known > 0)
                throw std::invalid_argument(std::string(what) +
                                            " must be different from each other.");
            found[one] = nb::int_(i++);
        }
        return found;
    }

    static Vector weights_of(nb::handle weights, const nb::list& labels) {
        if (weights.is_none()) return {};
        Vector values;
        for (nb::handle label : labels) {
            nb::object weight = weights.attr("get")(label, 1.0);
            const double value = nb::cast<double>(weight);
            if (!(value >= 0.0 && std::isfinite(value)))
                throw std::invalid_argument("weights of classes must be finite numbers >= 0.");
            values.push_back(value);
        }
        return values;
    }

    void extend(nb::handle names, nb::handle labels, bool sparse, const Spec* options,
                const Siblings& siblings) {
        const std::size_t more_names = nb::len(names), more_labels = nb::len(labels);
        const std::size_t before = model_.features(), features = before + more_names;
        if (!siblings.empty() && siblings.size() != more_names)
            throw std::invalid_argument("siblings must be one for each name.");
        for (const std::ptrdiff_t sibling : siblings)
            if (sibling >= static_cast<std::ptrdiff_t>(before))
                throw std::invalid_argument("siblings must be features of the model, or < 0.");
        const bool becomes_sparse = sparse && !spec().sparse;
        const bool same_sizes = !becomes_sparse && more_labels == 0 && options == nullptr;
        if (same_sizes && model_.has_room(features)) {
            add_names_in_place(names, features);
            begin_with_zeros(model_, before, siblings);
            return;
        }
        if (same_sizes && more_names == 0) return;
        // All of it is built beside the model and moved into its place at once.
        nb::list all_names = joined(names_, names), all_labels = joined(labels_, labels);
        nb::dict columns = indices(all_names, "names of features");
        nb::dict label_index = indices(all_labels, "labels of classes");
        Vector label_weights = weights_of(weights_by_label_, all_labels);
        Spec larger = options ? *options : spec();
        larger.sparse = spec().sparse || sparse;
        larger.classes = spec().classes;
        larger.features = larger.sparse ? 0 : features;
        larger.classes += more_labels;
        Model model = model_.resized(make_plan(larger), features);
        begin_with_zeros(model, before, siblings);
        Workspace work(*model.plan());
        model_ = std::move(model);
        work_ = std::move(work);
        names_ = std::move(all_names);
        labels_ = std::move(all_labels);
        columns_ = std::move(columns);
        label_index_ = std::move(label_index);
        label_weights_ = std::move(label_weights);
    }

    static void begin_with_zeros(Model& model, std::size_t before, const Siblings& siblings) {
        for (std::size_t i = 0; i < siblings.size(); ++i)
            if (siblings[i] >= 0)
                model.begin_with_zeros(before + i, static_cast<std::size_t>(siblings[i]));
    }

    void replace(Model model) {
        Workspace work(*model.plan());
        model_ = std::move(model);
        work_ = std::move(work);
    }

    // Features of a sparse model that has room for them.
    void add_names_in_place(nb::handle names, std::size_t features) {
        const std::size_t before = model_.features();
        std::size_t index = before;
        try {
            for (nb::handle name : names) {
                const int known = PyDict_Contains(columns_.ptr(), name.ptr());
                if (known < 0) throw nb::python_error();
                if (known > 0)
                    throw std::invalid_argument("names of features must be different.");
                names_.append(name);
                columns_[name] = nb::int_(index++);
            }
        } catch (...) {
            while (PyList_GET_SIZE(names_.ptr()) > static_cast<Py_ssize_t>(before)) {
                nb::object last = names_[nb::len(names_) - 1];
                PyDict_DelItem(columns_.ptr(), last.ptr());
                PyErr_Clear();
                PyList_SetSlice(names_.ptr(), PyList_GET_SIZE(names_.ptr()) - 1,
                                PyList_GET_SIZE(names_.ptr()), nullptr);
            }
            throw;
        }
        model_.set_features(features);
        work_.reset();
    }

    // The labels of a call, in the order of their codes. However the call ends, those whose rows
    // have come are the model's: all memory for that is taken before the first row.
    class NewLabels {
      public:
        NewLabels(PythonModel& model, nb::handle labels, const Vector& weights)
            : model_(model), any_(nb::len(labels) > 0) {
            if (!any_) return;
            labels_ = joined(model.labels_, labels);
            index_ = indices(labels_, "labels of classes");
            weights_ = weights;
        }
        ~NewLabels() {
            if (!any_) return;
            const auto known = static_cast<Py_ssize_t>(model_.spec().classes);
            for (Py_ssize_t i = PyList_GET_SIZE(labels_.ptr()); i-- > known;) {
                PyDict_DelItem(index_.ptr(), PyList_GET_ITEM(labels_.ptr(), i));
                PyList_SetSlice(labels_.ptr(), i, i + 1, nullptr);
                PyErr_Clear();
            }
            if (!weights_.empty()) weights_.resize(static_cast<std::size_t>(known));
            model_.labels_ = std::move(labels_);
            model_.label_index_ = std::move(index_);
            model_.label_weights_ = std::move(weights_);
        }
        NewLabels(const NewLabels&) = delete;
        NewLabels& operator=(const NewLabels&) = delete;

      private:
        PythonModel& model_;
        bool any_;
        nb::list labels_;
        nb::dict index_;
        Vector weights_;
    };

    // Codes of classes must be whole numbers that grow by one at a time.
    void check_targets(const Doubles& targets, const Doubles& weights, std::size_t known) const {
        double next = static_cast<double>(spec().classes);
        for (std::size_t i = 0; i < targets.shape(0); ++i) {
            const double target = targets(i), weight = weights(i);
            if (!(weight >= 0.0) || std::isinf(weight))
                throw std::invalid_argument("weights must be finite numbers >= 0.");
            if (!spec().classifies() || std::isnan(target)) continue;
            if (!(target >= 0.0 && target < static_cast<double>(known) &&
                  target == std::floor(target) && target <= next))
                throw std::invalid_argument(
                    "targets must be codes of labels, new ones in their order.");
            if (target == next) next += 1.0;
        }
    }

    // Throw what a signal handler raises, from a call that has released the GIL.
    static void look_for_signals() {
        const nb::gil_scoped_acquire acquire;
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }

    std::size_t keep(double coverage) {
        if (!(coverage > 0.0 && coverage < 1.0))
            throw std::invalid_argument("coverage must be a number between 0 and 1.");
        const std::size_t position = model_.scores().keep(coverage);
        if (position == MOST_COVERAGES)
            throw std::invalid_argument("coverage must be one of at most 16 that a model keeps.");
        return position;
    }

    bool read_target(PyObject* y, double& target) const {
        if (!spec().classifies())
            return y != Py_None && read_number(y, target) && !std::isnan(target);
        const std::ptrdiff_t index = index_of(label_index_.ptr(), y);
        target = static_cast<double>(index);
        return index >= 0;
    }

    // Read a dict into `values_` and, for a sparse model, `index_`. Names that are not known are
    // skipped if that is asked for; otherwise they make the row unreadable.
    bool read_row(PyObject* row, bool skip_unknown) {
        if (!PyDict_CheckExact(row)) return false;
        const bool sparse = spec().sparse;
        const std::size_t features = model_.features();
        values_.clear();
        index_.clear();
        if (!sparse) values_.assign(features, MISSING);
        PyObject *key, *value;
        Py_ssize_t position = 0;
        std::size_t count = 0;
        const std::size_t named = static_cast<std::size_t>(PyList_GET_SIZE(names_.ptr()));
        while (PyDict_Next(row, &position, &key, &value)) {
            double number;
            std::ptrdiff_t at;
            // Most rows have the names in the same order, as the same objects.
            if (count < named && PyList_GET_ITEM(names_.ptr(), static_cast<Py_ssize_t>(count)) == key) {
                at = static_cast<std::ptrdiff_t>(count);
            } else {
                const nb::object keep_key = nb::borrow(key), keep_value = nb::borrow(value);
                at = index_of(columns_.ptr(), key);
            }
            ++count;
            if (at == -2 || (at < 0 && !skip_unknown)) return false;
            if (!read_number(value, number)) return false;
            if (at < 0 || static_cast<std::size_t>(at) >= features) continue;
            if (sparse) {
                values_.push_back(number);
                index_.push_back(static_cast<std::int32_t>(at));
            } else {
                values_[static_cast<std::size_t>(at)] = number;
            }
        }
        return true;
    }

    RawRow raw_row() const {
        return {values_.data(), 1, spec().sparse ? index_.data() : nullptr, values_.size()};
    }

    // One row of a bulk call; a class that is new makes the model grow at its first row.
    void play_row(const BulkRows& rows, std::size_t i, double target, double weight,
                  std::size_t position, const Plan& final_plan, Bulk& bulk) {
        const RawRow raw = rows[i];
        bulk.reach[i] = position < MOST_COVERAGES ? model_.scores().reach(position) : 0.0;
        bool written = false;
        double predicted = MISSING;
        if (spec().classifies() && weight > 0.0 && !std::isnan(target) &&
            target >= static_cast<double>(spec().classes) && !is_extreme(raw)) {
            // That the class exists is news of the very row that is predicted.
            prediction_.resize(model_.plan()->predictions);
            model_.predict(raw, work_, prediction_);
            if (spec().classes == 1) predicted = prediction_[1];
            prediction_.resize(std::min(prediction_.size(), std::max<std::size_t>(spec().classes, 0)));
            bulk.write_prediction(i, prediction_);
            written = true;
            Spec larger = spec();
            larger.classes = static_cast<std::size_t>(target) + 1;
            replace(model_.resized(make_plan(larger), model_.features()));
        }
        prediction_.resize(model_.plan()->predictions);
        if (!std::isnan(target) && spec().classifies() &&
            target >= static_cast<double>(spec().slots()))
            weight = 0.0, written = false;
        const bool unknown = spec().classifies() && !std::isnan(target) &&
                             target >= static_cast<double>(spec().slots());
        const Outcome outcome =
            model_.step(raw, unknown ? MISSING : target, weight, work_, prediction_, predicted);
        bulk.status[i] = static_cast<std::uint8_t>(outcome.status);
        bulk.loss[i] = outcome.loss;
        given_ += 1.0;
        if (!written) {
            if (outcome.status == Status::extreme) model_.predict(raw, work_, prediction_);
            prediction_.resize(std::min(prediction_.size(),
                                        spec().classifies() ? spec().classes : std::size_t{1}));
            bulk.write_prediction(i, prediction_);
        }
        bulk.write_trail(i, model_, final_plan);
    }

    Model model_;
    Workspace work_;
    nb::list names_;
    nb::dict columns_;
    nb::list labels_;
    nb::dict label_index_;
    Vector label_weights_;
    nb::object weights_by_label_ = nb::none();
    double given_ = 0;
    mutable bool busy_ = false;
    Vector values_, prediction_;
    std::vector<std::int32_t> index_;
};

nb::object read_only(nb::handle dict) {
    return nb::steal(PyDictProxy_New(dict.ptr()));
}

}  // namespace

void bind_model(nb::module_& m) {
    const auto none = nb::make_tuple();
    nb::class_<PythonModel>(m, "Model", "A streaming model.")
        .def(nb::init<const Spec&>(), "spec"_a)
        .def("copy", [](const PythonModel& self) {
            const PythonModel::Use use(self);
            return PythonModel(self);
        })
        .def("grow", &PythonModel::grow, "names"_a, "labels"_a = none, "sparse"_a = false,
             "spec"_a.none() = nb::none(), "siblings"_a = Siblings())
        .def("change", &PythonModel::change, "spec"_a)
        .def("learn", &PythonModel::learn, "row"_a.none(), "y"_a.none(), "weight"_a = 1.0)
        .def("predict", &PythonModel::predict, "row"_a.none())
        .def("predict_proba", &PythonModel::predict_proba, "row"_a.none())
        .def("predict_members", &PythonModel::predict_members, "row"_a.none())
        .def("play",
             [](PythonModel& self, Doubles2D values, Doubles targets, Doubles weights,
                nb::sequence new_labels, bool trace, double coverage) {
                 return self.play(BulkRows(values), targets, weights, new_labels, trace, coverage);
             },
             "values"_a, "targets"_a, "weights"_a, "new_labels"_a = none, "trace"_a = false,
             "coverage"_a = 0.0)
        .def("play_sparse",
             [](PythonModel& self, Integers begins, Integers index, Contiguous values,
                Doubles targets, Doubles weights, nb::sequence new_labels, bool trace,
                double coverage) {
                 return self.play(BulkRows(begins, index, values), targets, weights, new_labels,
                                  trace, coverage);
             },
             "begins"_a, "index"_a, "values"_a, "targets"_a, "weights"_a, "new_labels"_a = none,
             "trace"_a = false, "coverage"_a = 0.0)
        .def("predict_many",
             [](PythonModel& self, Doubles2D values) { return self.predict_many(BulkRows(values)); },
             "values"_a)
        .def("predict_sparse",
             [](PythonModel& self, Integers begins, Integers index, Contiguous values) {
                 return self.predict_many(BulkRows(begins, index, values));
             },
             "begins"_a, "index"_a, "values"_a)
        .def("state", &PythonModel::state)
        .def_static("restore", &PythonModel::restore, "spec"_a, "names"_a, "labels"_a, "state"_a)
        .def("history", &PythonModel::history)
        .def("coverages", &PythonModel::coverages)
        .def("reach", &PythonModel::reach, "coverage"_a)
        .def("count_given", &PythonModel::count_given, "rows"_a)
        .def_prop_rw("label_weights", &PythonModel::label_weights,
                     &PythonModel::set_label_weights, nb::arg().none())
        .def_prop_ro("spec", [](const PythonModel& self) {
            Spec spec = self.spec();
            spec.features = self.model().features();
            return spec;
        })
        .def_prop_ro("names", &PythonModel::names)
        .def_prop_ro("labels", &PythonModel::labels)
        .def_prop_ro("columns", [](const PythonModel& self) { return read_only(self.columns()); })
        .def_prop_ro("label_index",
                     [](const PythonModel& self) { return read_only(self.label_index()); })
        .def_prop_ro("given", [](const PythonModel& self) {
            return static_cast<std::int64_t>(self.given());
        })
        .def_prop_ro("learned", [](const PythonModel& self) {
            return static_cast<std::int64_t>(self.model().history().rows_learned());
        })
        .def_prop_ro("total_loss",
                     [](const PythonModel& self) { return self.model().history().total_loss(); })
        .def_prop_ro("repeat_loss",
                     [](const PythonModel& self) { return self.model().last_target().total_loss; })
        .def_prop_ro("stride", [](const PythonModel& self) {
            return static_cast<std::int64_t>(self.model().history().stride());
        })
        .def_prop_ro("underflow", [](const PythonModel& self) { return self.model().underflow(); })
        .def_prop_ro("costs", &PythonModel::costs)
        .def_prop_ro("asleep", &PythonModel::asleep)
        .def_prop_ro("gains", &PythonModel::gains)
        .def_prop_ro("bytes", [](const PythonModel& self) {
            return Model::bytes(*self.model().plan(), self.model().features());
        })
        .def_prop_ro("x", &PythonModel::x)
        .def_prop_ro("centre", &PythonModel::centre);
}

}  // namespace obax
