#include "metrics/tensorboard.h"

#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "base/build_info.h"
#include "base/tfrecord.h"
#include "data/images/encode.h"
#include "metrics/event_file.h"
#include "metrics/tensorboard_tags.h"
#include "tensorboard.pb.h"

namespace redline::metrics {
namespace {

namespace proto = redline::tensorboard;
using Scalars = std::initializer_list<std::pair<std::string, double>>;

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

proto::Event event_at(std::int64_t step) {
  proto::Event event;
  event.set_wall_time(now());
  event.set_step(step);
  return event;
}

// `loss_name`: the name of the training loss in TensorBoard, with a description; empty: its tag.
std::string scalars_event(std::int64_t step, const Scalars& scalars, const std::string& loss_name = "") {
  proto::Event event = event_at(step);
  for (const auto& [tag, number] : scalars) {
    proto::Summary::Value& value = *event.mutable_summary()->add_value();
    value.set_tag(tag);
    value.set_simple_value(static_cast<float>(number));
    if (loss_name.empty() || tag != "Loss/train") continue;
    proto::Metadata& metadata = *value.mutable_metadata();
    metadata.mutable_plugin_data()->set_plugin_name("scalars");
    metadata.set_data_class(proto::DATA_CLASS_SCALAR);
    metadata.set_display_name(loss_name);
    metadata.set_summary_description("This loss includes label smoothing. Losses of evaluations do not.");
  }
  return event.SerializeAsString();
}

// A value that one of TensorBoard's plugins shows; the caller fills in its tensor.
proto::Summary::Value& plugin_value(proto::Event& event, const std::string& tag, const char* plugin,
                                    proto::DataClass data_class, const std::string& content = "") {
  proto::Summary::Value& value = *event.mutable_summary()->add_value();
  value.set_tag(tag);
  value.mutable_metadata()->mutable_plugin_data()->set_plugin_name(plugin);
  value.mutable_metadata()->mutable_plugin_data()->set_content(content);
  value.mutable_metadata()->set_data_class(data_class);
  return value;
}

std::string text_event(const std::string& tag, const char* plugin, const std::string& text) {
  proto::Event event = event_at(0);
  proto::Tensor& tensor = *plugin_value(event, tag, plugin, proto::DATA_CLASS_TENSOR).mutable_tensor();
  tensor.set_dtype(proto::DT_STRING);
  tensor.mutable_tensor_shape();
  tensor.add_string_val(text);
  return event.SerializeAsString();
}

// The hparams page reads only the metadata, yet a value must have some tensor.
std::string hparams_event(std::int64_t step, const char* tag, const proto::HparamsData& data) {
  proto::Event event = event_at(step);
  proto::Tensor& tensor =
      *plugin_value(event, tag, "hparams", proto::DATA_CLASS_TENSOR, data.SerializeAsString())
           .mutable_tensor();
  tensor.set_dtype(proto::DT_FLOAT);
  tensor.mutable_tensor_shape();
  tensor.add_float_val(0);
  return event.SerializeAsString();
}

proto::HparamsData experiment(const RunInfo& info) {
  proto::HparamsData data;
  for (const Hyperparameter& parameter : info.hyperparameters) {
    constexpr proto::HparamType kTypes[] = {proto::DATA_TYPE_BOOL, proto::DATA_TYPE_FLOAT64,
                                            proto::DATA_TYPE_STRING};
    proto::HparamInfo& entry = *data.mutable_experiment()->add_hparam_infos();
    entry.set_name(parameter.name);
    entry.set_type(kTypes[parameter.value.index()]);
  }
  const std::string training_loss = "training " + training_loss_name(info);
  for (const auto& [tag, title] :
       {std::pair{"acc1/val", "top-1"}, std::pair{"acc5/val", "top-5"},
        std::pair{"Loss/val", "validation loss"}, std::pair{"Loss/train", training_loss.c_str()},
        std::pair{"images_per_second", "images/s"}}) {
    proto::MetricInfo& metric = *data.mutable_experiment()->add_metric_infos();
    metric.mutable_name()->set_tag(tag);
    metric.set_display_name(title);
  }
  return data;
}

proto::HparamsData session_start(const RunInfo& info) {
  proto::HparamsData data;
  proto::SessionStart& start = *data.mutable_session_start_info();
  start.set_group_name(info.name);
  start.set_start_time_secs(now());
  for (const Hyperparameter& parameter : info.hyperparameters) {
    google::protobuf::Value& value = (*start.mutable_hparams())[parameter.name];
    if (const bool* flag = std::get_if<bool>(&parameter.value)) value.set_bool_value(*flag);
    if (const double* number = std::get_if<double>(&parameter.value)) value.set_number_value(*number);
    if (const std::string* text = std::get_if<std::string>(&parameter.value)) value.set_string_value(*text);
  }
  return data;
}

std::string layout() {
  proto::Layout layout;
  proto::Category& category = *layout.add_category();
  category.set_title("training and validation");
  for (const auto& [title, name] :
       {std::pair{"loss", "Loss"}, std::pair{"top-1", "acc1"}, std::pair{"top-5", "acc5"}}) {
    proto::Chart& chart = *category.add_chart();
    chart.set_title(title);
    for (const char* part : {"train", "val", "val_ema"})
      chart.mutable_multiline()->add_tag("^" + std::string(name) + "/" + part + "$");
  }
  return layout.SerializeAsString();
}

// TensorBoard renders Markdown.
std::string as_code(const std::string& text) {
  std::string code;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    code += "    " + text.substr(at, end - at) + "\n";
    at = end + 1;
  }
  return code;
}

}  // namespace

void TensorBoardSink::append(const std::string& event) {
  std::vector<std::uint8_t> record;
  append_record(record, {reinterpret_cast<const std::uint8_t*>(event.data()), event.size()});
  file_->append({reinterpret_cast<const char*>(record.data()), record.size()});
}

void TensorBoardSink::begin(const RunInfo& info) {
  info_ = info;
  if (info.resumed) {
    rewind_events(folder_, *info.resumed);
    last_step_ = info.resumed->step;
  }
  file_.emplace(new_event_file(folder_));
  proto::Event version = event_at(0);
  version.set_file_version("brain.Event:2");
  append(version.SerializeAsString());
  if (info.resumed) return;  // earlier files have what is written once
  append(text_event(kLayoutTag, "custom_scalars", layout()));
  append(text_event("config", "text", as_code("# " + program_text() + "\n" + info.config)));
  append(hparams_event(0, kExperimentTag, experiment(info)));
  append(hparams_event(0, kSessionStartTag, session_start(info)));
}

void TensorBoardSink::step(const Step& step) {
  append(scalars_event(
      step.step,
      {{"Loss/train", step.loss},
       {"acc1/train", 100 * step.top1},
       {"acc5/train", 100 * step.top5},
       {"lr", step.learning_rate},
       {"images_per_second", step.images_per_second()},
       {"step_seconds", step.seconds},
       {"data_wait", 100 * step.data_wait()},
       {"loss_scale", step.loss_scale},
       {"grad_norm", step.gradient_norm}},
      // The first value of a tag names it.
      !stepped_ && info_.label_smoothing > 0 ? "Loss/train: " + training_loss_name(info_) : ""));
  stepped_ = true;
  last_step_ = step.step;
  if (step.step_in_epoch + 1 == info_.steps_per_epoch)
    append(scalars_event(step.step, {{"epoch_time", step.epoch_seconds}}));
}

void TensorBoardSink::evaluation(const Evaluation& evaluation) {
  const std::string part = evaluation.weights == "ema" ? "val_ema" : "val";  // kEvaluationPrefix names them
  append(scalars_event(evaluation.step, {{"Loss/" + part, evaluation.loss},
                                         {"acc1/" + part, 100 * evaluation.top1},
                                         {"acc5/" + part, 100 * evaluation.top5}}));
}

void TensorBoardSink::picture(const Picture& picture) {
  proto::Event event = event_at(picture.step);
  proto::Tensor& tensor =
      *plugin_value(event, picture.tag, "images", proto::DATA_CLASS_BLOB_SEQUENCE).mutable_tensor();
  const std::vector<std::uint8_t> png = data::encode_png(picture.rgb.data(), picture.width, picture.height);
  tensor.set_dtype(proto::DT_STRING);
  tensor.mutable_tensor_shape()->add_dim()->set_size(3);
  tensor.add_string_val(std::to_string(picture.width));
  tensor.add_string_val(std::to_string(picture.height));
  tensor.add_string_val(png.data(), png.size());
  append(event.SerializeAsString());
}

void TensorBoardSink::histogram(const Histogram& histogram) {
  proto::Event event = event_at(histogram.step);
  proto::Tensor& tensor =
      *plugin_value(event, histogram.tag, "histograms", proto::DATA_CLASS_TENSOR).mutable_tensor();
  tensor.set_dtype(proto::DT_DOUBLE);
  tensor.mutable_tensor_shape()->add_dim()->set_size(static_cast<std::int64_t>(histogram.buckets.size()));
  tensor.mutable_tensor_shape()->add_dim()->set_size(3);
  for (const Histogram::Bucket& bucket : histogram.buckets) {
    for (const double value : {bucket.left, bucket.right, static_cast<double>(bucket.count)})
      tensor.add_double_val(value);
  }
  append(event.SerializeAsString());
}

void TensorBoardSink::end(const End& end) {
  // An interrupted run may be resumed; a second end would not be read.
  if (!file_) return;
  if (end.reason == "interrupted") return file_->finish();
  proto::HparamsData data;
  data.mutable_session_end_info()->set_status(end.reason == "finished" ? proto::STATUS_SUCCESS
                                                                       : proto::STATUS_FAILURE);
  data.mutable_session_end_info()->set_end_time_secs(now());
  append(hparams_event(last_step_, kSessionEndTag, data));
  file_->finish();
}

}  // namespace redline::metrics
