//! What is said of a pool.

use std::path::PathBuf;
use std::str::FromStr;

use sanwire_core::Size;
use sanwire_store::VolumeName;

/// A pool, before anything of it is opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolConfig {
    /// What volumes call it: as the name of a volume.
    pub name: String,
    /// The directory with the files of its volumes. It must be there.
    pub directory: PathBuf,
    /// How many bytes all its volumes have together at the most, written or not; `None`: any.
    pub limit_bytes: Option<u64>,
    /// Whether volumes that name no pool are in this one. One that is alone is it anyway.
    pub is_default: bool,
    /// How snapshots of its volumes are made.
    pub snapshots: SnapshotWay,
}

/// How snapshots of the volumes of a pool are made. Those that are there stay as they are made.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum SnapshotWay {
    /// By files that share their blocks where the file system has that, else not at all.
    #[default]
    Auto,
    /// By files that share their blocks.
    Reflink,
    /// By layers over the volume's file.
    Layers,
    /// Not at all.
    None,
}

impl FromStr for SnapshotWay {
    type Err = PoolConfigError;

    fn from_str(text: &str) -> Result<Self, PoolConfigError> {
        match text {
            "auto" => Ok(SnapshotWay::Auto),
            "reflink" => Ok(SnapshotWay::Reflink),
            "layers" => Ok(SnapshotWay::Layers),
            "none" => Ok(SnapshotWay::None),
            _ => Err(PoolConfigError::Snapshots(text.to_owned())),
        }
    }
}

/// What is wrong with what was written of a pool.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PoolConfigError {
    /// No pool's name.
    #[error("'{0}' is no name of a pool: 1 to 64 of the letters a-z and A-Z, digits, '.', '_' and '-'")]
    Name(String),
    /// It is not said where it is.
    #[error("'{0}' is no pool: use NAME=DIRECTORY[,limit=SIZE][,default][,snapshots=WAY], with an absolute path")]
    Form(String),
    /// No limit.
    #[error("'{0}' is no limit of a pool: use a size, like 500G")]
    Limit(String),
    /// No way of making snapshots.
    #[error("'{0}' is no way to make snapshots in a pool: use auto, reflink, layers or none")]
    Snapshots(String),
    /// Pools that do not go together.
    #[error("two pools are called {0}: give each a name of its own")]
    Twice(String),
    /// The same for their directories.
    #[error("the pools {0} and {1} have the same directory: leave one of them out")]
    SameDirectory(String, String),
    /// There can be one default only.
    #[error("the pools {0} and {1} are both the default: choose one")]
    Defaults(String, String),
}

impl PoolConfig {
    /// A pool of this name in this directory.
    ///
    /// # Errors
    /// When the name is none, the path is not absolute, or the limit is no size.
    pub fn new(name: &str, directory: PathBuf, limit: Option<&str>, is_default: bool) -> Result<Self, PoolConfigError> {
        let name = name.parse::<VolumeName>().map_err(|_| PoolConfigError::Name(name.to_owned()))?.to_string();
        if !directory.is_absolute() {
            return Err(PoolConfigError::Form(format!("{name}={}", directory.display())));
        }
        let size = |text: &str| match text.parse() {
            Ok(Size(bytes)) if bytes > 0 => Ok(bytes),
            _ => Err(PoolConfigError::Limit(text.to_owned())),
        };
        let limit_bytes = limit.map(size).transpose()?;
        Ok(PoolConfig { name, directory, limit_bytes, is_default, snapshots: SnapshotWay::default() })
    }

    /// The same with snapshots made in this way: `auto`, `reflink`, `layers` or `none`.
    ///
    /// # Errors
    /// When it is none of these.
    pub fn with_snapshots(self, way: &str) -> Result<Self, PoolConfigError> {
        Ok(PoolConfig { snapshots: way.parse()?, ..self })
    }

    /// Whether these go together.
    ///
    /// # Errors
    /// The first two that do not.
    pub fn check_all(pools: &[PoolConfig]) -> Result<(), PoolConfigError> {
        for (index, pool) in pools.iter().enumerate() {
            for other in &pools[..index] {
                let (one, two) = (other.name.clone(), pool.name.clone());
                if one == two {
                    return Err(PoolConfigError::Twice(one));
                }
                if other.directory == pool.directory {
                    return Err(PoolConfigError::SameDirectory(one, two));
                }
                if other.is_default && pool.is_default {
                    return Err(PoolConfigError::Defaults(one, two));
                }
            }
        }
        Ok(())
    }
}

/// The form of the command line: `NAME=DIRECTORY[,limit=SIZE][,default][,snapshots=WAY]`.
impl FromStr for PoolConfig {
    type Err = PoolConfigError;

    fn from_str(text: &str) -> Result<Self, PoolConfigError> {
        let form = || PoolConfigError::Form(text.to_owned());
        let (name, rest) = text.split_once('=').ok_or_else(form)?;
        let mut parts = rest.split(',');
        let directory = PathBuf::from(parts.next().unwrap_or_default());
        let (mut limit, mut is_default, mut snapshots) = (None, false, None);
        for part in parts {
            match part.split_once('=') {
                Some(("limit", size)) if limit.is_none() => limit = Some(size),
                Some(("snapshots", way)) if snapshots.is_none() => snapshots = Some(way),
                None if part == "default" && !is_default => is_default = true,
                _ => return Err(form()),
            }
        }
        PoolConfig::new(name, directory, limit, is_default)?.with_snapshots(snapshots.unwrap_or("auto"))
    }
}

/// Where volumes are that name no pool.
pub(super) fn default_of(pools: &[PoolConfig]) -> Option<String> {
    let said = pools.iter().find(|pool| pool.is_default);
    let only = if let [only] = pools { Some(only) } else { None };
    said.or(only).map(|pool| pool.name.clone())
}
