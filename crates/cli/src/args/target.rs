//! What a running server can be asked about its iSCSI targets.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};

/// What can be asked about iSCSI targets.
#[derive(Subcommand, Debug)]
pub(crate) enum TargetCommand {
    /// Show the iSCSI targets: their units, who may use them, and how
    Targets,
    /// Make an iSCSI target, to which volumes are mapped then; also one that is configured, and was removed
    #[command(after_help = "Examples:\n  sanwire ctl add-target backup --allow 10.0.0.0/16\n  \
                            sanwire ctl add-target iqn.2026-11.org.example:vm --chap-user host=/root/host.secret\n  \
                            sanwire ctl map-volume vm --target iqn.2026-11.org.example:vm")]
    AddTarget {
        /// Its name: iqn.YYYY-MM.domain:name, or what is to follow iqn.2026-11.org.sanwire:
        #[arg(value_name = "IQN|NAME")]
        name: String,
        /// How it is set.
        #[command(flatten)]
        settings: TargetArgs,
    },
    /// Change who may use an iSCSI target, and how: the sessions of those who may not any more end
    #[command(
        after_help = "Examples:\n  sanwire ctl set-target backup --allow 10.0.0.0/16 'iqn.1993-08.org.debian:*'\n  \
                            sanwire ctl set-target backup --chap-user host=/root/host.secret --chap-algorithms sha256,sha3-256\n  \
                            sanwire ctl set-target backup --redirect 10.0.0.2"
    )]
    SetTarget {
        /// Its name
        #[arg(value_name = "IQN|NAME")]
        name: String,
        /// What changes.
        #[command(flatten)]
        settings: TargetArgs,
        /// Do it also when it is used by initiators that may not use it any more
        #[arg(long)]
        force: bool,
    },
    /// Remove an iSCSI target, unless there are sessions with it; its volumes stay
    RemoveTarget {
        /// Its name
        #[arg(value_name = "IQN|NAME")]
        name: String,
        /// Do it also while there are sessions with it, which end
        #[arg(long)]
        force: bool,
    },
}

/// How a target is set; what is not said stays.
#[derive(Args, Debug)]
pub(crate) struct TargetArgs {
    /// What people call it; '' for nothing
    #[arg(long, value_name = "TEXT")]
    pub(crate) alias: Option<String>,

    /// Who may use it, in place of who might before: addresses, prefixes, names of initiators with * and ?, or any
    #[arg(long, value_name = "RULE", num_args = 1.., conflicts_with = "no_allow")]
    pub(crate) allow: Vec<String>,

    /// Only this host may, or whoever knows a CHAP secret
    #[arg(long)]
    pub(crate) no_allow: bool,

    /// A CHAP user of which an initiator must be one, and the file whose first line is the secret; in place of those before
    #[arg(long = "chap-user", value_name = "USER=FILE", conflicts_with = "no_chap")]
    pub(crate) chap_users: Vec<UserFile>,

    /// Nobody need show who they are, and that is meant
    #[arg(long)]
    pub(crate) no_chap: bool,

    /// As whom the target answers initiators that want to know who it is, and the file whose first line is the secret
    #[arg(long, value_name = "USER=FILE", conflicts_with = "no_mutual_chap")]
    pub(crate) mutual_chap: Option<UserFile>,

    /// The target answers no initiator any more that wants to know who it is
    #[arg(long)]
    pub(crate) no_mutual_chap: bool,

    /// The CHAP algorithms that may be used: md5, sha1, sha256, sha3-256, separated by commas; or all
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) chap_algorithms: Option<Vec<String>>,

    /// The tags of the portal groups through which it is reached, separated by commas; or all
    #[arg(long, value_name = "TAGS", value_delimiter = ',')]
    pub(crate) portal_groups: Option<Vec<GroupTag>>,

    /// Whether initiators must agree to CRC32C on headers and data
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) require_digests: Option<bool>,

    /// Where initiators log in instead: ADDR[:PORT][,GROUP]
    #[arg(long, value_name = "ADDR", conflicts_with = "no_redirect")]
    pub(crate) redirect: Option<String>,

    /// Initiators log in here again
    #[arg(long)]
    pub(crate) no_redirect: bool,

    /// Whether it has moved for good, and initiators may remember where
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) redirect_for_good: Option<bool>,
}

/// A CHAP user, and the file with the secret: secrets never stand on a command line, which others can read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct UserFile {
    pub(crate) user: String,
    pub(crate) file: PathBuf,
}

impl FromStr for UserFile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((user, file)) if !user.is_empty() && !file.is_empty() => {
                Ok(UserFile { user: user.to_owned(), file: file.into() })
            }
            _ => Err("write USER=FILE: the file's first line is the secret".to_owned()),
        }
    }
}

/// The tag of a portal group; `None` stands for all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GroupTag(pub(crate) Option<u16>);

impl FromStr for GroupTag {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(GroupTag(None));
        }
        let tag = text.parse().ok().filter(|tag| *tag != 0);
        tag.map(|tag| GroupTag(Some(tag))).ok_or_else(|| "a portal group has a tag from 1 to 65535".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_comes_with_a_file() {
        let told = UserFile { user: "host".into(), file: "/root/a=b".into() };
        assert_eq!("host=/root/a=b".parse(), Ok(told));
        for wrong in ["correct horse", "host=", "=secret"] {
            let refused = wrong.parse::<UserFile>().unwrap_err();
            assert!(refused.contains("USER=FILE"), "{refused}");
        }
        assert_eq!(["all", "7"].map(str::parse), [Ok(GroupTag(None)), Ok(GroupTag(Some(7)))]);
        assert!(["0", "65536", "x"].map(str::parse::<GroupTag>).iter().all(Result::is_err));
    }
}
