//! What reads as a value is written and read again as the same value.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sanwire_hdsp::wire::connection::Step;
use sanwire_hdsp::wire::discovery::Discovery;
use sanwire_hdsp::wire::flow::Flow;
use sanwire_hdsp::wire::live::Live;
use sanwire_hdsp::wire::offer::{Agreement, ClientOffer, ServerOffer};
use sanwire_hdsp::wire::pcu::RawPcu;
use sanwire_hdsp::wire::{Class, Header, Pdu};

fuzz_target!(|input: &[u8]| {
    if let Ok(header) = Header::read(input) {
        assert_eq!(header.write(), input[..8]);
    }
    if let Ok(pdu) = Pdu::read(input) {
        assert_eq!(pdu.write(), input[..28]);
        let _ = pdu.body();
    }
    if let Ok(raw) = RawPcu::read(input) {
        assert_eq!(raw.pcu.write(raw.operation.len()), raw.covered);
        let _ = raw.is_whole();
    }
    if let Ok(step) = Step::read(input) {
        assert_eq!(Step::read(&step.write()), Ok(step));
    }
    if let Ok(discovery) = Discovery::read(input) {
        assert_eq!(Discovery::read(&discovery.write()), Ok(discovery));
    }
    if let Ok(flow) = Flow::read(input) {
        assert_eq!(flow.write(), input);
    }
    for class in [Class::Query, Class::KeepAlive] {
        if let Ok(live) = Live::read(class, input) {
            assert_eq!(live.write(), input);
        }
    }
    if let Ok(offer) = ServerOffer::read(input) {
        assert_eq!(offer.write(), input);
    }
    if let Ok(offer) = ClientOffer::read(input) {
        assert_eq!(offer.write(), input);
    }
    if let Ok(agreement) = Agreement::read(input) {
        assert_eq!(agreement.write(), input);
    }
});
