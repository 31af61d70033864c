//! What users write: URLs, allow rules, wires, volumes (on the command line and in the configuration file), volumes that are to be derived (in
//! JSON and in lists in TOML), sizes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sanwire_core::{ClientId, MacAddress, Protection, Size};
use sanwire_initiator::Url;
use sanwire_server::{AllowRule, NewDvd, NewDvds, Wire, check_derived};
use sanwire_store::{StoreSpec, VolumeSpec};
use serde::Deserialize;

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    volume: Vec<VolumeSpec>,
}

/// A list of volumes that are to be derived.
#[derive(Deserialize)]
struct List {
    dvd: Vec<NewDvd>,
}

/// What is asked for is the volume that is kept of it, and nothing in it becomes something else.
fn check_new(new: &NewDvd) {
    let sent = serde_json::to_string(new).expect("it is sent to a server");
    assert_eq!(serde_json::from_str::<NewDvd>(&sent).expect("the server reads it"), *new);
    for program in [None, Some("/state/a,b.wasm")] {
        let Ok(volume) = new.spec(program) else { continue };
        assert_eq!((&*volume.name, volume.parent()), (&*new.name, Some(&*new.parent)));
        let shown = volume.to_string();
        assert!(shown.parse().as_ref() == Ok(&volume), "{shown}");
        let _ = check_derived(&mut [volume], Protection::Checksum);
    }
}

fuzz_target!(|input: &[u8]| {
    sanwire_store_file::register();
    sanwire_server::register_dvd();
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Ok(url) = text.parse::<Url>() {
        let shown = url.to_string();
        assert_eq!(shown.parse().as_ref(), Ok(&url), "{shown}");
        let _ = url.volume();
    }
    let _ = Url::is_meant_by(text);
    let _ = (text.parse::<AllowRule>().is_ok(), text.parse::<Wire>().is_ok());
    if let Ok(volume) = text.parse::<VolumeSpec>() {
        // What is kept of a volume is its text.
        let shown = volume.to_string();
        assert!(shown.parse().as_ref() == Ok(&volume), "{shown}");
        let _ = check_derived(&mut [volume], Protection::Checksum);
    }
    let _ = text.parse::<StoreSpec>().is_ok();
    if let Ok(id) = text.parse::<ClientId>() {
        assert_eq!(id.to_string().parse(), Ok(id));
    }
    if let Ok(mac) = text.parse::<MacAddress>() {
        assert_eq!(mac.to_string().parse(), Ok(mac));
    }
    let _ = text.parse::<Size>();
    if let Ok(file) = toml::from_str::<File>(text) {
        let _ = file.volume.len();
    }
    if let Ok(new) = serde_json::from_str::<NewDvd>(text) {
        check_new(&new);
    }
    if let Ok(NewDvds { dvds }) = serde_json::from_str(text) {
        dvds.iter().for_each(check_new);
    }
    if let Ok(List { dvd }) = toml::from_str(text) {
        dvd.iter().for_each(check_new);
    }
});
