// The configuration of a training run: this struct is the truth, whether a value came from a TOML file or a
// flag. Nothing below src/cli reads flags or the environment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace redline::train {

struct ModelConfig {
  std::string name = "resnet50";
  std::optional<std::int64_t> classes;  // unset: as many as the data has
  std::int64_t image_size = 224;
  bool zero_init_last = false;
  std::string init;  // file, checkpoint or run with the initial weights; empty: random
  bool ema = false;
  double ema_decay = 0.9999;
};

struct DataConfig {
  std::string path;             // a folder, or "synthetic"
  std::string val_dir;          // where validation images are, if not in path
  double val_split = 0;         // fraction of the training images to hold out for validation; 0: none
  std::int64_t workers = 0;     // 0: chosen from the cores
  std::string decode = "auto";  // of training images: "auto", "cpu", "gpu"
  std::string interpolation = "bilinear";
  double crop_pct = 0.875;
  double max_bad = 0.001;
  std::int64_t max_image_pixels = 100'000'000;
  std::int64_t max_image_bytes = std::int64_t{256} << 20;
  std::int64_t synthetic_batches = 100;

  bool synthetic() const { return path == "synthetic"; }
};

// What happens to training images.
struct AugmentConfig {
  std::vector<double> scale = {0.08, 1.0};
  std::vector<double> ratio = {3.0 / 4.0, 4.0 / 3.0};
  double hflip = 0.5;
  std::string auto_augment = "none";
  std::int64_t ra_magnitude = 9;
  std::int64_t ra_num_ops = 2;
  std::vector<double> color_jitter;  // brightness, contrast, saturation, hue; empty: none
  double random_erase = 0;
  std::vector<double> random_erase_scale = {0.02, 0.33};
  std::vector<double> random_erase_ratio = {0.3, 3.3};
  double mixup_alpha = 0;
  double cutmix_alpha = 0;
};

struct OptimizerConfig {
  std::string name = "sgd";
  std::int64_t batch_size = 32;
  std::int64_t accumulate = 1;
  std::int64_t global_batch = 0;  // images per step over all ranks; 0: given by the other options
  std::int64_t most_batch = 0;    // not an option: the given batch_size, once a global batch is shared
  double lr = 0.1;
  bool lr_scale_batch = false;
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 1e-4;
  double lars_trust = 0.001;
  std::vector<double> betas = {0.9, 0.999};  // of adamw and lamb
  double epsilon = 0;                        // of adamw and lamb; 0: 1e-8 and 1e-6
  double clip_norm = 0;                      // largest norm of the gradient; 0: off
  double head_lr = 0;                        // of the last layer; 0: lr
  double layer_decay = 1;                    // rate of each layer relative to the next one
  std::string freeze;                        // "stem,layer1": parts that are not trained
  double label_smoothing = 0;
};

struct ScheduleConfig {
  std::optional<std::int64_t> epochs, steps;  // neither: kDefaultEpochs
  std::string name = "step";
  std::optional<std::int64_t> step_size;  // epochs; neither this nor milestones: kDefaultStepSize
  std::vector<std::int64_t> milestones;   // epochs
  double gamma = 0.1;
  double power = 2;  // of the polynomial
  double min_lr = 0;
  std::optional<std::int64_t> warmup_epochs, warmup_steps;
  std::vector<std::int64_t> train_sizes;  // pixels, each for an equal share of the epochs; empty: image_size
};

struct DeviceConfig {
  std::string name = "auto";
  std::string dtype;  // "fp32", "tf32", "bf16", "fp16", "auto"; empty: auto with amp or on a GPU, else fp32
  bool amp = false;
  std::int64_t threads = 0;  // 0: all cores this process may use
  bool deterministic = false;
  bool tune = false;      // choose among all candidate kernels, by the time of whole steps if they are close
  bool time_all = false;  // time all of them; set by benchmarks
  bool no_fuse = false;
  std::string recompute = "none";  // activations not kept for backward: "none", "activations", "blocks"
  // How batches get to a GPU: "auto", or a name of backend::InputCopy.
  std::string input_copy = "auto";
};

// How the ranks of a job work together.
struct CommConfig {
  std::string grad_dtype = "fp32";  // type in which gradients are exchanged
  double bucket_mb = 25;            // size of a gradient bucket in MiB
  bool sync_bn = false;
  bool when_alone = false;          // a single rank exchanges gradients with itself
  std::int64_t check_every = 1000;  // steps between checks that all ranks have the same weights; 0: never
  double timeout = 60;              // seconds
  double join_timeout = 300;        // seconds
  std::string interface;            // a network interface; empty: the one that leads to rank 0
};

struct RunConfig {
  std::string output_dir = "runs";
  std::string name;  // empty: made from model, data and time
  std::int64_t seed = 0;
  std::int64_t eval_every = 1;   // epochs; 0: only at the end
  std::int64_t eval_offset = 0;  // epochs by which evaluations come after the multiples of eval_every
  double target_accuracy = 0;    // top-1 that ends the run, as a fraction; 0: none
  std::int64_t patience = 0;     // epochs without a better evaluation after which the run ends; 0: off
  std::string mlperf_log;        // a file, or "auto" for one in the run folder; empty: none
  std::string mlperf_org;        // who ran it, for that log
  std::int64_t log_every = 10;
  std::int64_t histograms_every = 0;  // steps; 0: never
  std::int64_t max_bad_steps = 10;
  std::string checkpoint_every;  // an interval; empty: every ten minutes, never for synthetic data
  std::int64_t keep = 3;         // newest checkpoints to keep
  std::string telemetry;         // interval between samples; empty: none are written
  bool quiet = false;
};

inline constexpr std::int64_t kDefaultEpochs = 90;
inline constexpr std::int64_t kDefaultStepSize = 30;

struct Config {
  ModelConfig model;
  DataConfig data;
  AugmentConfig augment;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  DeviceConfig device;
  CommConfig comm;
  RunConfig run;
  std::int64_t ranks = 1;  // processes of the job: not an option, set by the launcher
};

// Throws UsageError for a value out of range, naming its flag, and for two that contradict each other, naming
// both.
void validate(const Config& config);

// How many parts at the front of the network are not trained. Throws UsageError if the parts of --freeze are
// not such a front.
int frozen_parts(const OptimizerConfig& optimizer);

// --checkpoint-every, or its default.
std::string checkpoint_interval(const Config& config);

// Samples that one update sees, over all ranks.
std::int64_t images_per_step(const Config& config);

// With a global batch: sets batch_size (at most the given one) and accumulate for one of config.ranks ranks.
// Throws UsageError if it cannot be divided among them.
void share_global_batch(Config& config);
// Undoes share_global_batch, for a run that resumes with another number of ranks.
Config before_sharing(Config config);

// One option: its place in the TOML file, its flags, and how to reach its value in a Config. The command
// line, the file reader and the file writer all work from this one list.
struct Field {
  template <typename T>
  using Member = T& (*)(Config&);

  std::string section, key;  // [section] key = …
  std::string flags;         // "--batch-size,-b", as CLI11 takes them; empty for the positional argument
  std::string help;
  std::variant<Member<bool>, Member<std::int64_t>, Member<double>, Member<std::string>,
               Member<std::vector<std::int64_t>>, Member<std::vector<double>>,
               Member<std::optional<std::int64_t>>>
      member;
  std::vector<std::string> choices = {};  // the only values of a string; empty: any
  // Fields of one group exclude each other. A flag also unsets what a file gave for the others of its group.
  std::string group = {};
  std::string alone = {};           // meaning of the flag without a value; empty: it needs one
  std::string value_name = "TEXT";  // name of the value in the help, for a string without choices

  std::string path() const { return section + "." + key; }
  std::string flag() const;  // the long flag, as messages name it
};

const std::vector<Field>& fields();

// Resets a field to its default.
void reset(const Field& field, Config& config);
// Copies one field's value.
void copy(const Field& field, const Config& from, Config& to);

}  // namespace redline::train
