#include "module_pool.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <stdexcept>

#include "bulk.hpp"
#include "pool.hpp"
#include "python_arrays.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace obax {

namespace {

using Numbers = std::vector<std::int32_t>;

class PythonPool {
  public:
    explicit PythonPool(const Spec& spec) : pool_(spec) {}

    class Use {
      public:
        explicit Use(const PythonPool& pool) : pool_(pool) {
            if (pool.busy_)
                throw std::runtime_error(
                    "this pool is in use by another call; calls from several threads need a lock.");
            pool.busy_ = true;
        }
        ~Use() { pool_.busy_ = false; }
        Use(const Use&) = delete;
        Use& operator=(const Use&) = delete;

      private:
        const PythonPool& pool_;
    };

    const Spec& spec() const { return pool_.spec(); }
    std::size_t size() const { return pool_.size(); }

    std::size_t add(std::size_t count) {
        const Use use(*this);
        if (count > (std::size_t{1} << 40)) throw std::invalid_argument("too many models.");
        pool_.add(count);
        return pool_.size() - count;
    }

    void change(const Spec& spec) {
        const Use use(*this);
        pool_.change(spec);
    }

    nb::tuple play(Integers tenants, Doubles2D values, Numbers columns, Contiguous targets,
                   Contiguous weights, std::size_t labels, std::size_t threads, bool trace,
                   Numbers implied, Numbers siblings) {
        const Use use(*this);
        const std::size_t n = tenants.shape(0);
        if (targets.shape(0) != n || weights.shape(0) != n)
            throw std::invalid_argument("targets and weights must be as many as rows.");
        for (std::size_t i = 0; i < n; ++i) {
            const double target = targets.data()[i], weight = weights.data()[i];
            if (!(weight >= 0.0) || std::isinf(weight))
                throw std::invalid_argument("weights must be finite numbers >= 0.");
            if (spec().classifies() && !std::isnan(target) &&
                !(target >= 0.0 && target < static_cast<double>(labels) &&
                  target == std::floor(target)))
                throw std::invalid_argument("targets must be numbers of classes.");
        }
        PoolRows rows = rows_of(tenants, values, columns, labels);
        rows.learn = true;
        rows.targets = targets.data();
        rows.weights = weights.data();
        implied.resize(labels, -1);
        for (const std::int32_t label : implied)
            if (label < -1 || label >= static_cast<std::int32_t>(labels))
                throw std::invalid_argument("implied must be numbers of classes, or -1.");
        rows.implied = implied.data();
        siblings.resize(rows.width, -1);
        rows.siblings = siblings.data();
        Spec all = spec();
        for (const std::int32_t column : columns)
            all.features = std::max(all.features, static_cast<std::size_t>(column) + 1);
        all.features = std::max(all.features, most_features_);
        most_features_ = all.features;
        all.classes = spec().classifies() ? labels : 0;
        const Plan trail(all);
        rows.trail = &trail;
        Bulk bulk(n, spec().classifies() ? labels : 1, trace ? trail.trail : 0);
        rows.status = bulk.status.get();
        rows.loss = bulk.loss.get();
        rows.predictions = bulk.prediction_data();
        rows.trails = trace ? bulk.trail_data() : nullptr;
        run(rows, threads);
        return bulk.as_tuple();
    }

    nb::object predict(Integers tenants, Doubles2D values, Numbers columns, std::size_t labels,
                       std::size_t threads) {
        const Use use(*this);
        PoolRows rows = rows_of(tenants, values, columns, labels);
        rows.learn = false;
        Bulk bulk(rows.size, spec().classifies() ? labels : 1, 0);
        rows.predictions = bulk.prediction_data();
        run(rows, threads);
        return bulk.predictions();
    }

    void count_rejected(Integers tenants) {
        const Use use(*this);
        for (std::size_t i = 0; i < tenants.shape(0); ++i) {
            Tenant& tenant = at(tenants.data()[i]);
            tenant.rejected += 1.0;
        }
    }

    // What is known of a key: rows given and rejected, when it was used, its features and classes
    // by the pool's numbers, rows learned, their total loss, x and shares.
    nb::dict info(std::int64_t number) {
        const Use use(*this);
        const Tenant& tenant = at(number);
        nb::dict found;
        found["given"] = nb::int_(static_cast<std::int64_t>(tenant.given));
        found["rejected"] = nb::int_(static_cast<std::int64_t>(tenant.rejected));
        found["used"] = nb::int_(static_cast<std::int64_t>(tenant.used));
        found["features"] = tenant.features;
        found["labels"] = tenant.labels;
        found["in_memory"] = nb::bool_(tenant.model != nullptr);
        if (!tenant.model) return found;
        const Model& model = *tenant.model;
        Vector trail(model.plan()->trail);
        model.write_trail(trail);
        found["learned"] = nb::int_(static_cast<std::int64_t>(model.history().rows_learned()));
        found["total_loss"] = nb::float_(model.history().total_loss());
        found["stride"] = nb::int_(static_cast<std::int64_t>(model.history().stride()));
        found["x"] = to_numpy(trail, {trail.size()});
        const History& history = model.history();
        found["history"] = nb::make_tuple(
            to_numpy_integers(history.rows()), to_numpy(history.losses(), {history.size()}),
            to_numpy(history.trails(), {history.size(), history.width()}));
        return found;
    }

    nb::object centre(std::int64_t number) {
        const Use use(*this);
        const Model& model = model_of(number);
        Workspace work(*model.plan());
        const Matrix centre = model.centre(work);
        return to_numpy(centre.flat(), {centre.rows(), centre.columns()});
    }

    // Columns over all keys: given, rejected, used, learned, total loss, and whether the model is
    // in memory (models that are not have 0 rows here).
    nb::object summary() {
        const Use use(*this);
        Vector table(6 * pool_.size());
        for (std::size_t i = 0; i < pool_.size(); ++i) {
            const Tenant& tenant = pool_[i];
            double* line = table.data() + 6 * i;
            line[0] = tenant.given;
            line[1] = tenant.rejected;
            line[2] = tenant.used;
            line[3] = tenant.model ? tenant.model->history().rows_learned() : 0.0;
            line[4] = tenant.model ? tenant.model->history().total_loss() : 0.0;
            line[5] = tenant.model ? 1.0 : 0.0;
        }
        return to_numpy(table, {pool_.size(), 6});
    }

    nb::dict state(std::int64_t number) {
        const Use use(*this);
        NamedArrays arrays;
        Archive archive = Archive::writer(arrays);
        model_of(number).visit(archive);
        nb::dict found;
        for (const auto& [name, array] : arrays)
            found[name.c_str()] = to_numpy(array.values, array.shape);
        return found;
    }

    void restore(std::int64_t number, Numbers features, Numbers labels, double given,
                 double rejected, double used, nb::dict state) {
        const Use use(*this);
        Tenant& place = at(number);
        check_numbers(features, std::size_t{1} << 24, "features");
        check_numbers(labels, 32768, "labels");
        if (!(given >= 0 && rejected >= 0 && rejected <= given && used >= 0 && given < 9e15 &&
              used < 9e15))
            throw std::invalid_argument("counts of rows must be numbers >= 0.");
        Tenant tenant = pool_.empty_tenant(features, labels);
        NamedArrays arrays;
        for (const auto& [name, value] : state)
            arrays[nb::cast<std::string>(name)] = from_numpy(nb::cast<std::string>(name), value);
        Archive archive = Archive::reader(arrays);
        tenant.model->visit(archive);
        tenant.given = given;
        tenant.rejected = rejected;
        tenant.used = used;
        place = std::move(tenant);
    }

    // Forget the model of a key, whose state is kept elsewhere until it is restored.
    void release(std::int64_t number) {
        const Use use(*this);
        at(number).model.reset();
    }

    double bytes_per_key() {
        const Use use(*this);
        double most = 0.0;
        for (std::size_t i = 0; i < pool_.size(); ++i) {
            if (!pool_[i].model) continue;
            most = std::max(most, pool_[i].model->state_bytes() + sizeof(Tenant) +
                                      4.0 * static_cast<double>(pool_[i].features.size() * 2 +
                                                                pool_[i].labels.size()));
        }
        return most;
    }

  private:
    Tenant& at(std::int64_t number) {
        if (number < 0 || static_cast<std::size_t>(number) >= pool_.size())
            throw std::invalid_argument("there is no model with this number.");
        return pool_[static_cast<std::size_t>(number)];
    }

    Model& model_of(std::int64_t number) {
        Tenant& tenant = at(number);
        if (!tenant.model) throw std::invalid_argument("this model is not in memory.");
        return *tenant.model;
    }

    static void check_numbers(const Numbers& numbers, std::size_t most, const char* what) {
        Numbers sorted = numbers;
        std::sort(sorted.begin(), sorted.end());
        for (std::size_t i = 0; i < sorted.size(); ++i)
            if (sorted[i] < 0 || static_cast<std::size_t>(sorted[i]) >= most ||
                (i > 0 && sorted[i] == sorted[i - 1]))
                throw std::invalid_argument(std::string(what) +
                                            " must be different numbers of the pool's.");
    }

    PoolRows rows_of(const Integers& tenants, const Doubles2D& values, const Numbers& columns,
                     std::size_t labels) {
        if (values.shape(0) != tenants.shape(0) || values.shape(1) != columns.size())
            throw std::invalid_argument("values must have a line for each key and a column for "
                                        "each feature.");
        if (labels > 32768) throw std::invalid_argument("labels must be at most 32,768.");
        check_numbers(columns, std::size_t{1} << 24, "columns");
        for (std::size_t i = 0; i < tenants.shape(0); ++i) at(tenants.data()[i]);
        PoolRows rows{};
        rows.tenants = tenants.data();
        rows.size = tenants.shape(0);
        rows.values = values.data();
        rows.row_stride = values.stride(0);
        rows.stride = values.stride(1);
        columns_ = columns;
        rows.columns = columns_.data();
        rows.width = columns_.size();
        rows.labels = labels;
        return rows;
    }

    void run(const PoolRows& rows, std::size_t threads) {
        bool interrupted = false;
        {
            const nb::gil_scoped_release release;
            Clock clock(0.0);
            pool_.play(rows, std::min<std::size_t>(threads, 64), [&] {
                if (!clock.is_time_now()) return false;
                const nb::gil_scoped_acquire acquire;
                interrupted = PyErr_CheckSignals() != 0;
                return interrupted;
            });
        }
        if (interrupted) throw nb::python_error();
    }

    Pool pool_;
    Numbers columns_;
    std::size_t most_features_ = 0;
    mutable bool busy_ = false;
};

}  // namespace

void bind_pool(nb::module_& m) {
    nb::class_<PythonPool>(m, "Pool", "Many models of one spec, one for each key.")
        .def(nb::init<const Spec&>(), "spec"_a)
        .def("__len__", &PythonPool::size)
        .def_prop_ro("spec", &PythonPool::spec)
        .def("add", &PythonPool::add, "count"_a)
        .def("change", &PythonPool::change, "spec"_a)
        .def("play", &PythonPool::play, "tenants"_a, "values"_a, "columns"_a, "targets"_a,
             "weights"_a, "labels"_a = 0, "threads"_a = 1, "trace"_a = false,
             "implied"_a = Numbers(), "siblings"_a = Numbers())
        .def("predict", &PythonPool::predict, "tenants"_a, "values"_a, "columns"_a,
             "labels"_a = 0, "threads"_a = 1)
        .def("count_rejected", &PythonPool::count_rejected, "tenants"_a)
        .def("info", &PythonPool::info, "number"_a)
        .def("centre", &PythonPool::centre, "number"_a)
        .def("summary", &PythonPool::summary)
        .def("state", &PythonPool::state, "number"_a)
        .def("restore", &PythonPool::restore, "number"_a, "features"_a, "labels"_a, "given"_a,
             "rejected"_a, "used"_a, "state"_a)
        .def("release", &PythonPool::release, "number"_a)
        .def_prop_ro("bytes_per_key", &PythonPool::bytes_per_key);
}

}  // namespace obax
