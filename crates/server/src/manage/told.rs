//! Requests as people and programs are told of them: without secrets, and not as long as they may be.

use std::borrow::Cow;

use sanwire_core::text::shortened;
use serde_json::Value;

use super::Request;

/// What somebody asks for is cut after so many bytes.
const REQUEST_MAX_BYTES: usize = 1024;

/// Of a long request, a text is cut after so many bytes, and a list after so many items.
const TEXT_MAX_BYTES: usize = 256;
const ITEMS_MAX: usize = 16;

/// Of a list of volumes that were derived together, so many bytes stand in one line of the audit log: who reads it takes no longer lines than 64 KiB.
const PART_MAX_BYTES: usize = 16 << 10;

/// What stands for a module.
const PROGRAM: &str = "(module)";

/// What stands for a secret.
const SECRET: &str = "(secret)";

/// What is asked, in short; without secrets.
pub(super) fn what(request: &Request) -> String {
    without_secrets(request).map(|request| in_short(&request)).unwrap_or_default()
}

/// What is to be done, and to what, however long the rest of the request is.
pub(super) fn in_short(mut request: &Value) -> String {
    // What is done for somebody, on a condition or as a job stands within that.
    while let Some(inner) = request.get("request").filter(|inner| inner.is_object()) {
        request = inner;
    }
    let word = |key: &str| Some(request.get(key)?.as_str()?.to_owned());
    let several = || {
        let volumes = request.get("volumes").or_else(|| request.get("dvds"))?.as_array()?.iter();
        let names = volumes.filter_map(|volume| volume.as_str().or_else(|| volume.get("name")?.as_str()));
        Some(names.collect::<Vec<_>>().join(", "))
    };
    let object = several().or_else(|| ["name", "volume", "snapshot", "client", "id"].into_iter().find_map(word));
    let object = object.map(|object| shortened(&object, TEXT_MAX_BYTES).into_owned());
    [word("do"), object].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// What was asked for, for the audit log. Of a copy each place is told where its data may have gone.
pub(super) fn audited(request: &Request) -> Option<Value> {
    if request.is_copy_out() { whole(request) } else { beginning(request) }
}

/// What was done, for the audit log, where that takes more than a line: of volumes that were derived together it is told of each who may use what.
pub(super) fn audited_parts(request: &Request) -> Vec<Value> {
    let Some(mut value) = without_secrets(request) else { return Vec::new() };
    let is_long = value.to_string().len() > REQUEST_MAX_BYTES;
    let Some(dvds) = list_of(&mut value).filter(|_| is_long).map(std::mem::take) else { return Vec::new() };
    let mut parts: Vec<(usize, Vec<Value>)> = Vec::new();
    for mut new in dvds {
        if new.to_string().len() > REQUEST_MAX_BYTES {
            cut(&mut new);
        }
        let length_bytes = new.to_string().len();
        match parts.last_mut() {
            Some((all_bytes, part)) if *all_bytes + length_bytes <= PART_MAX_BYTES => {
                *all_bytes += length_bytes;
                part.push(new);
            }
            _ => parts.push((length_bytes, vec![new])),
        }
    }
    let with = |(_, part): (usize, Vec<Value>)| {
        let mut value = value.clone();
        if let Some(dvds) = list_of(&mut value) {
            *dvds = part;
        }
        value
    };
    parts.into_iter().map(with).collect()
}

/// The volumes that are to be derived together, however that is asked for.
fn list_of(request: &mut Value) -> Option<&mut Vec<Value>> {
    let mut innermost = request;
    while innermost.get("request").is_some_and(Value::is_object) {
        innermost = &mut innermost["request"];
    }
    innermost.get_mut("dvds")?.as_array_mut()
}

/// What was asked for: as it is, or if that is long, what is done and to what, and the beginning of its text.
fn beginning(request: &Request) -> Option<Value> {
    let value = without_secrets(request)?;
    match shortened(&value.to_string(), REQUEST_MAX_BYTES) {
        Cow::Borrowed(_) => Some(value),
        Cow::Owned(text) => Some(Value::String(format!("{}: {text}", in_short(&value)))),
    }
}

/// What was asked for: as it is, or if that is long, with its texts and lists cut.
pub(super) fn whole(request: &Request) -> Option<Value> {
    let mut value = without_secrets(request)?;
    if value.to_string().len() > REQUEST_MAX_BYTES {
        cut(&mut value);
    }
    Some(value)
}

fn cut(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(short) = shortened(text, TEXT_MAX_BYTES) {
                *text = short;
            }
        }
        Value::Array(items) => {
            let all = items.len();
            items.truncate(ITEMS_MAX);
            items.iter_mut().for_each(cut);
            if all > ITEMS_MAX {
                items.push(format!("... ({all} in all)").into());
            }
        }
        Value::Object(fields) => fields.values_mut().for_each(cut),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn without_secrets(request: &Request) -> Option<Value> {
    let mut value = serde_json::to_value(request).ok()?;
    let mut innermost = &mut value;
    loop {
        if let Some(secret) = innermost.pointer_mut("/settings/psk").filter(|secret| !secret.is_null()) {
            *secret = SECRET.into();
        }
        hide_chap_secrets(innermost);
        hide_programs(innermost);
        match innermost {
            Value::Object(fields) if fields.contains_key("request") => innermost = &mut fields["request"],
            _ => return Some(value),
        }
    }
}

/// They fill the line, and say nothing to people.
fn hide_programs(request: &mut Value) {
    let hide = |new: &mut Value| {
        if let Some(program) = new.get_mut("program").filter(|program| !program.is_null()) {
            *program = PROGRAM.into();
        }
    };
    hide(request);
    request.get_mut("dvds").and_then(Value::as_array_mut).into_iter().flatten().for_each(hide);
}

/// In the settings of a target.
fn hide_chap_secrets(request: &mut Value) {
    let users = request.pointer_mut("/settings/chap").and_then(Value::as_array_mut).into_iter().flatten();
    users.filter_map(|user| user.get_mut("secret")).for_each(|secret| *secret = SECRET.into());
    if let Some(secret) = request.pointer_mut("/settings/mutual_chap/secret") {
        *secret = SECRET.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::hyperscsi::clients::{ClientSettings, Secret};
    use crate::front::iscsi::target_settings::{ChapUser, SetSecret, TargetSettings};
    use crate::manage::{NewDvd, NewDvds};

    #[test]
    fn a_secret_is_not_written_down_however_a_request_is_wrapped() {
        let settings = ClientSettings { psk: Some(Secret([0xab; 32])), ..Default::default() };
        let request = Request::AddClient { id: "a1".repeat(16), settings, force: false };
        let on_condition = Request::IfRevision { revision: 7, request: Box::new(request.clone()) };
        let started = Request::Start { request: Box::new(on_condition.clone()) };
        let page = Request::Page { request: Box::new(started.clone()), from: 0 };
        let deep = Request::IfRevision { revision: 7, request: Box::new(page) };
        for request in [request, on_condition, started, deep] {
            let shown =
                [beginning(&request), whole(&request)].map(Option::unwrap).map(|shown| shown.to_string()).concat();
            assert!(shown.contains("(secret)") && !shown.contains("abab"), "{shown}");
        }
    }

    #[test]
    fn no_secret_of_a_target_is_written_down() {
        let user = |user: &str| ChapUser { user: user.into(), secret: SetSecret("correct horse battery".into()) };
        let settings = TargetSettings {
            chap: Some(vec![user("host"), user("other")]),
            mutual_chap: Some(user("storage")),
            ..TargetSettings::default()
        };
        let add = Request::AddTarget { name: "new".into(), settings: settings.clone() };
        let set = Request::SetTarget { name: "new".into(), settings, force: true };
        let wrapped =
            Request::Start { request: Box::new(Request::IfRevision { revision: 7, request: Box::new(set.clone()) }) };
        for request in [add, set, wrapped] {
            let shown =
                [beginning(&request), whole(&request)].map(Option::unwrap).map(|shown| shown.to_string()).concat();
            assert!(shown.matches("(secret)").count() == 2 * 3 && shown.contains("storage"), "{shown}");
            assert!(!shown.contains("horse"), "{shown}");
        }
    }

    #[test]
    fn each_place_of_a_copy_is_written_down() {
        let to = (0..16).map(|number| format!("hs+ip://10.0.0.{number}/{}", "v".repeat(230))).collect();
        let order = crate::manage::CopyOrder { volume: "disk".into(), to, ..Default::default() };
        let request = Request::Start { request: Box::new(Request::CopyOut(order)) };
        let line = audited(&request).unwrap().to_string();
        for number in 0..16 {
            assert!(line.contains(&format!("hs+ip://10.0.0.{number}/{}\"", "v".repeat(230))), "{number}: {line}");
        }
    }

    #[test]
    fn no_program_is_written_down() {
        let new = |name: &str| NewDvd { name: name.into(), program: Some("AGFzbQ".into()), ..NewDvd::default() };
        let one = Request::CreateDvd(new("a"));
        let some = Request::CreateDvds(NewDvds { dvds: vec![new("a"), NewDvd::default(), new("b")] });
        for request in [one, some] {
            let shown = [beginning(&request), whole(&request)].map(|shown| shown.unwrap().to_string()).concat();
            assert!(shown.contains("(module)") && !shown.contains("AGFzbQ"), "{shown}");
        }
    }

    #[test]
    fn each_volume_of_a_list_is_written_down_with_whom_it_admits() {
        let new = |number: usize| NewDvd {
            name: format!("d{number}"),
            parent: "disk".into(),
            principals: vec![format!("10.0.{}.{}", number / 256, number % 256)],
            ..NewDvd::default()
        };
        let long = NewDvd { regions: (0..1024).map(|at| format!("{at}M+1M")).collect(), ..new(1000) };
        let dvds: Vec<NewDvd> = (0..1000).map(new).chain([long]).collect();
        let request = Request::CreateDvds(NewDvds { dvds: dvds.clone() });
        let parts = audited_parts(&Request::IfRevision { revision: 7, request: Box::new(request) });
        assert!(parts.len() > 2 && parts.iter().all(|part| part.to_string().len() < 32 << 10), "{}", parts.len());
        assert!(parts.iter().all(|part| part["request"]["do"] == "create-dvds" && part["revision"] == 7));
        let told = parts.iter().flat_map(|part| part["request"]["dvds"].as_array().unwrap());
        let told: Vec<_> =
            told.map(|new| (new["name"].as_str().unwrap(), new["principals"][0].as_str().unwrap())).collect();
        assert_eq!(told, dvds.iter().map(|new| (&*new.name, &*new.principals[0])).collect::<Vec<_>>());
        let few = Request::CreateDvds(NewDvds { dvds: vec![new(1)] });
        assert!(audited_parts(&few).is_empty() && audited_parts(&Request::Status).is_empty(), "one line will do");
    }

    #[test]
    fn a_long_request_within_others_is_called_by_what_it_does_and_to_what() {
        let volumes: Vec<String> = (0..600).map(|number| format!("disk{number}")).collect();
        let take =
            |volumes: &[String]| Request::Snapshot { volumes: volumes.to_vec(), name: "s".into(), protected: false };
        let within = |request: Request| Request::InPools {
            pools: (0..200).map(|number| format!("pool{number}")).collect(),
            request: Box::new(Request::IfRevision { revision: 7, request: Box::new(request) }),
        };
        assert_eq!(what(&within(take(&volumes[..2]))), "snapshot disk0, disk1");
        assert_eq!(what(&within(Request::DropClient { client: "alice".into() })), "drop-client alice");
        let request = within(take(&volumes));
        let (words, cut) = (what(&request), whole(&request).unwrap());
        assert!(words.starts_with("snapshot disk0, disk1, ") && words.ends_with(" bytes)"), "{words}");
        assert!(in_short(&cut).starts_with("snapshot disk0, disk1, "), "{cut}");
        let inner = &cut["request"]["request"];
        assert_eq!((&inner["do"], &inner["name"]), (&"snapshot".into(), &"s".into()), "{cut}");
        assert!(words.len() < 300 && cut.to_string().len() < REQUEST_MAX_BYTES, "{cut}");
        let request = within(Request::RemoveVolume { name: "v".repeat(60_000), force: false });
        let line = beginning(&request).unwrap().to_string();
        for words in [what(&request), in_short(&whole(&request).unwrap())] {
            assert!(words.starts_with("remove-volume vvv") && words.len() < 400, "{words}");
        }
        assert!(line.starts_with("\"remove-volume vvv") && line.len() < 2000, "{line}");
        let short = within(Request::Status);
        let Value::Object(_) = whole(&short).unwrap() else { panic!("{short:?}") };
    }
}
