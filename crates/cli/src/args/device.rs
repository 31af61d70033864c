//! The options of the command that `attach` and `detach` give themselves.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use sanwire_attach::DeviceJob;

/// What is done to a block device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum DeviceJobChoice {
    /// Check whether it is in use
    Check,
    /// Write back what the kernel caches of it
    WriteBack,
    /// Give it the size that its file has by now
    Grow,
}

impl From<DeviceJobChoice> for DeviceJob {
    fn from(choice: DeviceJobChoice) -> Self {
        match choice {
            DeviceJobChoice::Check => DeviceJob::Check,
            DeviceJobChoice::WriteBack => DeviceJob::WriteBack,
            DeviceJobChoice::Grow => DeviceJob::Grow,
        }
    }
}

impl From<DeviceJob> for DeviceJobChoice {
    fn from(job: DeviceJob) -> Self {
        match job {
            DeviceJob::Check => DeviceJobChoice::Check,
            DeviceJob::WriteBack => DeviceJobChoice::WriteBack,
            DeviceJob::Grow => DeviceJobChoice::Grow,
        }
    }
}

/// `sanwire block-device`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  sanwire block-device write-back /dev/loop0")]
pub(crate) struct DeviceArgs {
    /// What to do
    pub(crate) job: DeviceJobChoice,

    /// The device
    pub(crate) device: PathBuf,
}
