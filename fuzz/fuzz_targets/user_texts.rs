//! What users write: URLs, allow rules, wires, volumes (on the command line and in the configuration file), sizes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sanwire_core::{ClientId, MacAddress, Protection, Size};
use sanwire_initiator::Url;
use sanwire_server::{AllowRule, Wire, check_derived};
use sanwire_store::{StoreSpec, VolumeSpec};
use serde::Deserialize;

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    volume: Vec<VolumeSpec>,
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
});
