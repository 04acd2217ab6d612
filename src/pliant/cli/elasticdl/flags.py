"""The flags of ElasticDL's old and new clients: those supported, without effect and refused."""

from __future__ import annotations

from dataclasses import dataclass

TRAIN, EVALUATE, PREDICT = "train", "evaluate", "predict"
VERBS = (TRAIN, EVALUATE, PREDICT)


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag with all its spellings; the first one is passed to the tasks if `passed` is true."""

    names: tuple[str, ...]
    about: str
    kind: str = "text"  # text | count | least0 | path | data | codec
    passed: bool = False  # passed to the master and the workers
    metavar: str = "TEXT"

    @property
    def key(self) -> str:
        return self.names[0]


def _task(names: str, about: str, kind: str = "text", metavar: str = "N") -> Flag:
    return Flag(tuple(names.split()), about, kind, True, metavar)


def _job(names: str, about: str, metavar: str = "TEXT") -> Flag:
    return Flag(tuple(names.split()), about, metavar=metavar)


FLAGS = (
    _job("job_name", "Name of the job, unique in the project.", "NAME"),
    _job("model_file", "Model file.", "FILE"),
    _job("model_zoo", "Folder in which --model_def is searched.", "DIR"),
    _job("model_def", "Model file, as MODULE.SYMBOL inside --model_zoo.", "NAME"),
    _task("train_data_dir training_data training_data_dir", "Training records.", "data", "DIR|digits:N"),
    _task(
        "validation_data_dir validation_data evaluation_data_dir evaluation_data",
        "Evaluation records.",
        "data",
        "DIR|digits:N",
    ),
    _task("prediction_data_dir prediction_data", "Records for the prediction.", "data", "DIR|digits:N"),
    _task("num_epochs num_epoch", "Number of passes over the data.", "count"),
    _task("minibatch_size", "Records per gradient.", "count"),
    _task("records_per_task record_per_task", "Records per lease of a worker.", "count"),
    Flag(
        ("num_minibatches_per_task",), "Records per lease of a worker, in minibatches.", "count", metavar="N"
    ),
    _task("num_workers num_worker", "Number of workers (default: 1).", "count"),
    _task("grads_to_wait", "Gradients per update.", "count"),
    _task("codec_type", "Record format: bytes or tf_example.", "codec", "CODEC"),
    _task("evaluation_steps", "Updates between two evaluations; 0: none.", "least0"),
    _task("checkpoint_steps", "Updates between two checkpoints; 0: none.", "least0"),
    _task("checkpoint_dir", "Folder of the checkpoints.", "path", "DIR"),
    _task("keep_checkpoint_max", "Number of checkpoints to keep.", "count"),
    _task("output", "Folder for the result.", "path", "PATH"),
    _task("seed", "Random seed of the record order and the initial weights.", "least0"),
    *(
        _task(symbol, f"Name of {symbol} in the model file.", metavar="NAME")
        for symbol in (
            "model",
            "feature_columns",
            "label_columns",
            "loss",
            "optimizer",
            "input_fn",
            "feed",
            "dataset_fn",
            "eval_metrics_fn",
            "callbacks",
            "on_applied",
        )
    ),
    _job("master_pod_priority", "Priority class of the master.", "CLASS"),
    _job("worker_pod_priority", "Priority class of the workers.", "CLASS"),
    _job("master_resource_request", "Resources of the master: cpu=1,memory=1024Mi.", "LIST"),
    _job("worker_resource_request", "Resources of a worker: cpu=1,memory=4096Mi,gpu=1.", "LIST"),
    _job("master_cpu_request", "CPU cores of the master (default: 100m).", "CPU"),
    _job("master_memory_request", "Memory of the master (default: 1024Mi).", "AMOUNT"),
    _job("worker_cpu_request", "CPU cores of a worker (default: 1000m).", "CPU"),
    _job("worker_memory_request", "Memory of a worker (default: 4096Mi).", "AMOUNT"),
    _job("envs", "Environment variables: A=1,B=2.", "LIST"),
)

WITHOUT_EFFECT = {
    "no image is built or pushed": (
        "image_base", "image_name", "repository", "push_image", "docker_image_prefix",
        "docker_image_repository", "docker_base_url", "docker_tlscert", "docker_tlskey", "image_pull_policy",
        "extra_pypi_index", "local_pkg_dir", "cluster_spec", "cluster_spec_json",
    ),
    "nothing limits a task on this machine": (
        "master_cpu_limit", "master_memory_limit", "worker_cpu_limit", "worker_memory_limit",
        "master_resource_limit", "worker_resource_limit",
    ),
    "tasks see this machine's own files": ("volume", "volume_name", "mount_path"),
    "there are no parameter servers": (
        "num_ps_pods", "ps_resource_request", "ps_resource_limit", "ps_pod_priority", "use_go_ps",
        "distribution_strategy", "use_async", "lr_staleness_modulation", "get_model_steps",
        "sync_version_tolerance",
    ),
    "Pliant decides this": (
        "namespace", "restart_policy", "relaunch_on_worker_failure", "evaluation_start_delay_secs",
        "evaluation_throttle_secs", "log_level", "log_file_path", "log_loss_steps", "tensorboard_log_dir",
        "need_pod_manager", "need_task_manager", "need_elasticdl_job_service", "need_tf_config",
        "populate_env_names", "aux_params", "force_use_kube_config_file", "job_type", "master_port",
        "ps_addrs",
    ),
}  # fmt: skip
"""Accepted flags of ElasticDL without effect, by the reason why."""

WEIGHTS = "checkpoint_dir_for_init"  # ElasticDL's flag for the folder of the initial weights
REFUSED = {
    "model_params": "write the values into the model file",
    "custom_data_reader": "read the records in feed() or dataset_fn() of the model file",
    "data_reader_params": "read the records in feed() or dataset_fn() of the model file",
    "custom_training_loop": "write a script with pliant.train and submit that",
    "prediction_outputs_processor": "read the rows that are written to --output",
    "checkpoint_filename_for_init": "name a folder with --checkpoint_dir",
    WEIGHTS: "training continues from the checkpoint in --checkpoint_dir: use that option",
}
"""Flags that are refused, since the job would differ without them, and the cure. WEIGHTS: for train only."""
