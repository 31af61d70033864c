//! Requests and their answers, stage by stage.

use super::*;

#[test]
fn a_login_may_lead_straight_to_the_operational_stage() {
    let (mut server, directory) = (server_with_seed(1), OneTarget::default());
    let answers = ask(&mut server, &directory, &request(1, None), &(names() + "InitialR2T=No\0"));
    assert_eq!((status(&answers), answers[0].0.transits), (0, false));
    assert!(answers[0].1.contains("InitialR2T=No\0") && answers[0].1.contains("MaxRecvDataSegmentLength="));
    assert!(ask(&mut server, &directory, &request(1, Some(3)), "").is_empty(), "the session answers");
    let admitted = admitted(&mut server);
    assert_eq!(admitted.status_number, answers[0].0.status_number.wrapping_add(1));
    assert!(!admitted.session.initial_r2t);
}

#[test]
fn a_login_without_an_initiator_or_a_target_misses_a_parameter() {
    for text in ["", "InitiatorName=iqn.2026-11.org.example:host\0", "TargetName=iqn.2026-11.org.sanwire:disk0\0"] {
        let mut server = server_with_seed(1);
        assert_eq!(status(&ask(&mut server, &OneTarget::default(), &request(1, Some(3)), text)), 0x0207);
        assert!(refused(&mut server).contains("did not say"));
    }
}
