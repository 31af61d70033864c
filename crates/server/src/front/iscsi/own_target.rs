//! The targets that volumes have which are in no target of the configuration.

use sanwire_iscsi::{Authentication, NameError};
use sanwire_store::VolumeSpec;

use super::target_node::TargetNodeConfig;
use crate::allow::AllowList;
use crate::derived::chap_users_of;

/// A target that a volume has for itself.
pub(crate) enum OwnTarget {
    /// It can be served so.
    Guarded(TargetNodeConfig),
    /// It is open to whoever `allow` names, as far as its units are.
    Open(TargetNodeConfig),
    /// Nobody could log in: these CHAP users are principals of the volume, and no target of its parent knows a secret of theirs.
    UsersUnknown(Vec<String>),
}

impl OwnTarget {
    /// That of a volume; `others` are the targets that have the volume from which it is derived: they know the secrets of CHAP users.
    ///
    /// # Errors
    /// [`NameError`] when the volume's name cannot be that of a target.
    pub(crate) fn of(spec: &VolumeSpec, allow: AllowList, others: &[TargetNodeConfig]) -> Result<Self, NameError> {
        let target = TargetNodeConfig::of_volume(&spec.name, allow)?;
        let users = chap_users_of(spec);
        if users.is_empty() {
            return Ok(OwnTarget::Open(target));
        }
        Ok(match authentication(&users, others) {
            Some(authentication) => OwnTarget::Guarded(TargetNodeConfig { authentication, ..target }),
            None => OwnTarget::UsersUnknown(users.into_iter().map(str::to_owned).collect()),
        })
    }

    /// That of a volume whose users nobody knows: it is there, and nobody may log in.
    pub(crate) fn closed(spec: &VolumeSpec) -> Option<TargetNodeConfig> {
        let target = TargetNodeConfig::of_volume(&spec.name, AllowList::of_no_initiator()).ok()?;
        // Where nobody comes in, nobody need show anything.
        Some(TargetNodeConfig { is_meant_open: true, ..target })
    }
}

/// How they show who they are to a target of their own: as to those targets that know their secrets.
fn authentication(users: &[&str], others: &[TargetNodeConfig]) -> Option<Authentication> {
    let knows = |target: &&TargetNodeConfig| {
        target.authentication.users.iter().any(|credential| users.contains(&&*credential.name))
    };
    let first = others.iter().find(knows)?;
    let mut authentication = Authentication { users: Vec::new(), ..first.authentication.clone() };
    for credential in others.iter().flat_map(|target| &target.authentication.users) {
        let is_new = authentication.users.iter().all(|known| known.name != credential.name);
        if is_new && users.contains(&&*credential.name) {
            authentication.users.push(credential.clone());
        }
    }
    Some(authentication)
}

#[cfg(test)]
mod tests {
    use sanwire_iscsi::{ChapSecret, Credential};

    use super::*;
    use crate::derived;

    fn target(name: &str, users: &[&str]) -> TargetNodeConfig {
        let user = |name: &&str| Credential {
            name: (*name).into(),
            secret: ChapSecret::new(format!("the secret of {name}").into_bytes()).unwrap(),
        };
        let authentication = Authentication { users: users.iter().map(user).collect(), ..Authentication::default() };
        TargetNodeConfig { authentication, ..TargetNodeConfig::of_volume(name, AllowList::default()).unwrap() }
    }

    fn own(principals: &str, others: &[TargetNodeConfig]) -> OwnTarget {
        derived::register();
        let spec: VolumeSpec = format!("cam=dvd:disk{principals}").parse().unwrap();
        OwnTarget::of(&spec, AllowList::default(), others).unwrap()
    }

    #[test]
    fn users_of_chap_log_in_to_a_target_of_their_own_as_to_that_of_the_parent() {
        let others = [target("one", &["alice", "bob"]), target("two", &["bob", "carol"])];
        let OwnTarget::Guarded(target) = own(",principal=chap:carol,principal=chap:bob,principal=any", &others) else {
            panic!("it is guarded")
        };
        let names: Vec<_> = target.authentication.users.iter().map(|user| &*user.name).collect();
        assert_eq!(names, ["bob", "carol"], "and nobody else");
        assert!(!target.is_open() && target.name.as_str().ends_with(":cam"));
    }

    #[test]
    fn without_such_users_it_is_open_and_with_unknown_ones_there_is_none() {
        let others = [target("one", &["alice"])];
        assert!(matches!(own(",principal=10.0.0.1", &others), OwnTarget::Open(target) if target.is_open()));
        let OwnTarget::UsersUnknown(users) = own(",principal=chap:Alice", &others) else {
            panic!("nobody could log in")
        };
        assert_eq!(users, ["Alice"]);
    }
}
