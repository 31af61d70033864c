//! A derived volume that is to be made, as it is asked for.

use data_encoding::BASE64;
use sanwire_store::{SpecError, VolumeName, VolumeSpec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A volume that is to be derived from another one.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewDvd {
    /// The volume from which it is derived. By HTTP the path says it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(ignore)]
    pub parent: String,
    /// What clients call it.
    pub name: String,
    /// The parts of the parent that it has, in this order: `OFFSET+LENGTH` in bytes, like `16M+8M`, in whole blocks. Without any it has all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub regions: Vec<String>,
    /// What may be done with it: `read`, `write`, `discard`, `management`, `reservations`, `copy-source`, `copy-target`, or operation codes
    /// like `8Fh`. Without any: what may be done with the parent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<String>,
    /// Who may use it: `any`, an address, a prefix, `key:ID`, `chap:USER`, or `claimed:` with an iSCSI initiator name or a MAC address.
    pub principals: Vec<String>,
    /// How long: a time as in RFC 3339, or how long from now on, like `2h`. Without it, until it is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Whether it cannot be written.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// The protection level of its packets over HyperSCSI, HDSP and VISA; without it, that of the parent, which is the least that it may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security: Option<String>,
    /// Who may derive volumes from it, besides the owners of the parent; written as principals are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<String>,
    /// The WebAssembly module that judges its commands, in base64 (RFC 4648 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// The iSCSI target that gets it as its next logical unit; without it, a target of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// Volumes that are to be derived together: all of them, or none.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewDvds {
    /// The volumes, up to 1000. None of them has a program, nor is it derived from another one of these.
    #[schema(min_items = 1, max_items = 1000)]
    pub dvds: Vec<NewDvd>,
}

impl NewDvds {
    /// So many at the most.
    pub const COUNT_MAX: usize = 1000;
}

impl NewDvd {
    /// The volume that is meant, as the configuration would have it; `program` is where its module will be.
    ///
    /// # Errors
    /// [`SpecError`] when it is none.
    pub fn spec(&self, program: Option<&str>) -> Result<VolumeSpec, SpecError> {
        let name: VolumeName = self.name.parse()?;
        let parent: VolumeName = self.parent.parse()?;
        let mut keys: Vec<(&str, String)> = Vec::new();
        let all =
            |key: &'static str, values: &[String]| values.iter().map(|value| (key, value.clone())).collect::<Vec<_>>();
        keys.extend(all("region", &self.regions));
        keys.extend(all("allow-ops", &self.operations));
        keys.extend(all("principal", &self.principals));
        keys.extend(self.until.clone().map(|until| ("until", until)));
        keys.extend(program.map(|path| ("program", path.to_owned())));
        keys.extend(self.read_only.then(|| ("readonly", true.to_string())));
        keys.extend(self.security.clone().map(|level| ("security", level)));
        keys.extend(all("owner", &self.owners));
        VolumeSpec::of_parts(&name, &format!("dvd:{parent}"), &keys)
    }

    /// The module.
    ///
    /// # Errors
    /// When it is not in base64.
    pub(super) fn module(&self) -> Result<Option<Vec<u8>>, data_encoding::DecodeError> {
        self.program.as_ref().map(|text| BASE64.decode(text.as_bytes())).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::derived;

    fn new() -> NewDvd {
        NewDvd { parent: "disk".into(), name: "cam".into(), principals: vec!["any".into()], ..NewDvd::default() }
    }

    fn spec(new: &NewDvd) -> Result<String, String> {
        derived::register();
        new.spec(None).map(|spec| spec.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_asked_for_is_a_volume() {
        assert_eq!(spec(&new()).unwrap(), "cam=dvd:disk,principal=any");
        let full = NewDvd {
            regions: vec!["16M+8M".into(), "1G+2M".into()],
            operations: vec!["read".into(), "write".into()],
            principals: vec!["10.0.0.0/8".into(), "chap:a,b".into()],
            until: Some("2027-01-31T18:00:00Z".into()),
            read_only: true,
            security: Some("hash".into()),
            owners: vec!["10.0.0.1".into()],
            ..new()
        };
        let text = full.spec(Some("/state/a,b.wasm")).unwrap().to_string();
        for part in [
            "cam=dvd:disk,region=16M+8M,region=1G+2M,allow-ops=read,allow-ops=write,principal=10.0.0.0/8",
            r"principal=chap:a\,b,until=2027-01-31T18:00:00Z,program=/state/a\,b.wasm",
            ",readonly=true,security=hash,owner=10.0.0.1",
        ] {
            assert!(text.contains(part), "{text}: {part}");
        }
        assert_eq!(text.parse::<VolumeSpec>().unwrap().to_string(), text);
    }

    #[test]
    fn nothing_in_it_becomes_something_else() {
        for (name, parent) in [("cam=ram:1G,x", "disk"), ("cam", "disk,principal=any"), ("", "disk"), ("cam", "")] {
            let error = spec(&NewDvd { name: name.into(), parent: parent.into(), ..new() }).unwrap_err();
            assert!(error.contains("is no volume name"), "{error}");
        }
        for (until, region) in [(Some("2h,readonly"), "0+1M"), (None, "0+1M,readonly")] {
            let until = until.map(str::to_owned);
            assert!(spec(&NewDvd { until, regions: vec![region.into()], ..new() }).is_err());
        }
        assert!(spec(&NewDvd { principals: Vec::new(), ..new() }).unwrap_err().contains("principal"));
    }
}
