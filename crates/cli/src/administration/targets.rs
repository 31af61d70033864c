//! iSCSI targets: what is asked about them, and how they are shown.

use sanwire_server::{Answer, ChapUser, Request, SCHEMA, SetSecret, TargetSettings, TargetStatus};
use serde_json::json;

use crate::args::{GroupTag, TargetArgs, TargetCommand, UserFile};
use crate::config::read_password;
use crate::failure::misuse;
use crate::output;

/// What stands for all of them.
const ALL: &str = "all";

pub(super) fn request(command: &TargetCommand) -> anyhow::Result<Request> {
    Ok(match command {
        TargetCommand::Targets => Request::Status,
        TargetCommand::AddTarget { name, settings } => {
            Request::AddTarget { name: name.clone(), settings: target_settings(settings)? }
        }
        TargetCommand::SetTarget { name, settings, force } => {
            Request::SetTarget { name: name.clone(), settings: target_settings(settings)?, force: *force }
        }
        TargetCommand::RemoveTarget { name, force } => Request::RemoveTarget { name: name.clone(), force: *force },
    })
}

fn target_settings(args: &TargetArgs) -> anyhow::Result<TargetSettings> {
    let chap: Vec<ChapUser> = args.chap_users.iter().map(chap_user).collect::<anyhow::Result<_>>()?;
    let without_all = |names: Vec<String>| if names == [ALL] { Vec::new() } else { names };
    let groups = |tags: &Vec<GroupTag>| match &tags[..] {
        [GroupTag(None)] => Ok(Vec::new()),
        tags => tags.iter().map(|tag| tag.0.ok_or_else(|| misuse("--portal-groups takes tags, or all"))).collect(),
    };
    Ok(TargetSettings {
        alias: args.alias.clone(),
        allow: (args.no_allow || !args.allow.is_empty()).then(|| args.allow.clone()),
        chap: (args.no_chap || !chap.is_empty()).then_some(chap),
        mutual_chap: args.mutual_chap.as_ref().map(chap_user).transpose()?,
        no_mutual_chap: args.no_mutual_chap,
        chap_algorithms: args.chap_algorithms.clone().map(without_all),
        portal_groups: args.portal_groups.as_ref().map(groups).transpose()?,
        require_digests: args.require_digests,
        redirect: args.redirect.clone().or(args.no_redirect.then(String::new)),
        redirect_for_good: args.redirect_for_good,
    })
}

fn chap_user(UserFile { user, file }: &UserFile) -> anyhow::Result<ChapUser> {
    let secret = read_password(file)?;
    let secret = str::from_utf8(secret.as_bytes());
    let secret = secret.map_err(|_| misuse(format!("the secret in {} is no text in UTF-8", file.display())))?;
    Ok(ChapUser { user: user.clone(), secret: SetSecret(secret.to_owned()) })
}

/// Asks for the targets, and gives what is printed of them.
pub(super) fn show(as_json: bool, ask: impl Fn(&Request) -> anyhow::Result<Answer>) -> anyhow::Result<String> {
    let Answer::Status(status) = ask(&Request::Status)? else {
        anyhow::bail!("the server's answer cannot be read: is it another version?")
    };
    if as_json {
        return Ok(format!("{:#}\n", json!({ "schema": SCHEMA, "targets": status.targets })));
    }
    Ok(table(&status.targets))
}

fn table(targets: &[TargetStatus]) -> String {
    let head = ["TARGET", "ALIAS", "UNITS", "ALLOW", "CHAP", "MUTUAL", "ALGORITHMS", "GROUPS", "DIGESTS", "REDIRECT"];
    output::narrow_table(head, &targets.iter().map(row).collect::<Vec<_>>())
}

fn row(TargetStatus { name, terms, units, .. }: &TargetStatus) -> [String; 10] {
    let listed = |list: Vec<String>, none: &str| if list.is_empty() { none.to_owned() } else { list.join(",") };
    let units = units.iter().map(|(lun, volume)| format!("{lun}={volume}")).collect();
    let groups = terms.portal_groups.iter().map(ToString::to_string).collect();
    let whoever = if terms.chap.is_empty() { "this host" } else { "who knows a secret" };
    let for_good = if terms.redirect_for_good { " for good" } else { "" };
    [
        name.clone(),
        if terms.alias.is_empty() { "-".to_owned() } else { terms.alias.clone() },
        listed(units, "-"),
        listed(terms.allow.clone(), whoever),
        listed(terms.chap.clone(), "-"),
        terms.mutual_chap.clone().unwrap_or_else(|| "-".to_owned()),
        listed(terms.chap_algorithms.clone(), ALL),
        listed(groups, ALL),
        if terms.require_digests { "required" } else { "-" }.to_owned(),
        terms.redirect.as_ref().map_or_else(|| "-".to_owned(), |to| format!("{to}{for_good}")),
    ]
}

#[cfg(test)]
mod tests {
    use sanwire_server::TargetTerms;

    use super::*;

    #[test]
    fn a_target_is_shown_with_who_may_use_it_and_without_a_secret() {
        let target = |terms| TargetStatus {
            revision: 1,
            name: "iqn.2026-11.org.example:vm".into(),
            terms,
            units: vec![(0, "vm".into())],
            groups: Vec::new(),
        };
        let chap = TargetTerms {
            chap: vec!["host".into()],
            portal_groups: vec![1, 2],
            redirect: Some("10.0.0.2".into()),
            redirect_for_good: true,
            ..TargetTerms::default()
        };
        let allow = TargetTerms { allow: vec!["10.0.0.0/8".into(), "any".into()], ..TargetTerms::default() };
        let shown = table(&[target(chap), target(allow), target(TargetTerms::default())]);
        for word in ["0=vm", "who knows a secret", "1,2", "10.0.0.2 for good", "10.0.0.0/8,any", "this host"] {
            assert!(shown.contains(word), "{word}: {shown}");
        }
    }

    #[test]
    fn a_secret_is_read_from_a_file_that_nobody_else_can_read() {
        use std::os::unix::fs::PermissionsExt;
        let file = std::env::temp_dir().join(format!("sanwire-chap-secret-{}", std::process::id()));
        std::fs::write(&file, "correct horse\nand more\n").unwrap();
        let read = |mode| {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            chap_user(&UserFile { user: "host".into(), file: file.clone() })
        };
        assert_eq!(read(0o600).unwrap(), ChapUser { user: "host".into(), secret: SetSecret("correct horse".into()) });
        assert!(read(0o644).unwrap_err().to_string().contains("chmod 600"));
        std::fs::remove_file(file).unwrap();
    }
}
