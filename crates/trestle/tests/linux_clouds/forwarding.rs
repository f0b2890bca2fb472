//! The one setting of the machine that a way out needs: on while a controller has one, and as it was before afterwards.

use super::{Host, Lab, sh};

fn forwarding(host: &Host) -> String {
    sh(&format!("{} sysctl -n net.ipv4.ip_forward", host.enter().join(" "))).trim().to_owned()
}

fn leads_out(host: &Host) -> Lab {
    let enter = host.enter();
    let enter: Vec<&str> = enter.iter().map(String::as_str).collect();
    let lab = Lab::with(&enter, &["--cloud", "lab=linux"]);
    lab.ok("resource create lab.web");
    lab.ok("tag set far --ip 1.1.1.1");
    lab.ok("rule add lab.web --name out --out --protocol icmp --peer far");
    assert!(lab.pings("lab.web", "1.1.1.1"), "there is a way out");
    lab
}

fn goes(lab: &Lab) {
    lab.ok("resource delete lab.web");
    lab.until("nothing is left", |lab| lab.left().is_empty());
}

#[test]
fn whoever_goes_last_switches_forwarding_off_again() {
    let host = Host::new("last");
    let first = leads_out(&host);
    assert_eq!(forwarding(&host), "1");
    let mut second = leads_out(&host);
    // The one that switched it on is not the last to need it.
    goes(&first);
    assert_eq!(forwarding(&host), "1");
    assert!(second.pings("lab.web", "1.1.1.1"), "the other still has its way out");
    // What is to be put back is known after a crash.
    second.crash();
    goes(&second);
    assert_eq!(forwarding(&host), "0");
    assert_eq!(sh(&format!("{} nft list tables", host.enter().join(" "))), "");
}

#[test]
fn forwarding_that_was_on_before_stays_on() {
    let host = Host::new("kept");
    sh(&format!("{} sysctl -qw net.ipv4.ip_forward=1", host.enter().join(" ")));
    goes(&leads_out(&host));
    assert_eq!(forwarding(&host), "1");
}
