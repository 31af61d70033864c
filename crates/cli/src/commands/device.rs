//! `sanwire block-device`: what `attach` and `detach` have done in a process of its own, where it may wait.

use std::path::Path;
use std::process::Command;

use clap::ValueEnum;
use sanwire_attach::{DeviceJob, perform};

use crate::args::{DeviceArgs, DeviceJobChoice};

/// Does the job and tells the parent.
pub(crate) fn run(args: &DeviceArgs) {
    perform(args.job.into(), &args.device);
}

/// This program, as the helper of its own attachments.
pub(crate) fn helper(job: DeviceJob, device: &Path) -> Command {
    // Not by its name: it may have been replaced by a newer one since.
    let mut command = Command::new("/proc/self/exe");
    let job = DeviceJobChoice::from(job).to_possible_value();
    command.arg("block-device").args(job.map(|job| job.get_name().to_owned())).arg(device);
    command
}
