//! Messages are made by OpenSSL, so that what is read is not what the same hands have written.

use std::{fs, process::Command};

use tempfile::TempDir;

use super::*;

/// Signs with a key and a certificate of its own, for a name.
pub struct Signer(TempDir);

impl Signer {
    pub fn new(name: &str) -> Self {
        let signer = Self(tempfile::tempdir().unwrap());
        let (subject, names) = (format!("/CN={name}"), format!("subjectAltName=DNS:{name}"));
        signer.openssl(
            &["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", "key", "-out", "pem"],
            &["-subj", &subject, "-addext", &names, "-addext", "basicConstraints=critical,CA:FALSE"],
        );
        signer
    }

    fn openssl(&self, args: &[&str], more: &[&str]) {
        let mut command = Command::new("openssl");
        let output = command.args(args).args(more).current_dir(self.0.path()).output();
        let output = output.expect("openssl is needed (Debian: openssl)");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    pub fn pem(&self) -> Vec<u8> {
        fs::read(self.0.path().join("pem")).unwrap()
    }

    /// The message in BER.
    pub fn sign(&self, content: &str, flags: &[&str]) -> Vec<u8> {
        fs::write(self.0.path().join("content"), content).unwrap();
        let args =
            ["cms", "-sign", "-binary", "-nodetach", "-md", "sha256", "-in", "content", "-outform", "DER"];
        let files = ["-signer", "pem", "-inkey", "key", "-out", "message"];
        self.openssl(&args, &[&files[..], flags].concat());
        fs::read(self.0.path().join("message")).unwrap()
    }

    fn key(&self) -> Vec<u8> {
        let (_, pem) = x509_parser::pem::parse_x509_pem(&self.pem()).unwrap();
        pem.parse_x509().unwrap().public_key().subject_public_key.data.to_vec()
    }
}

#[test]
fn a_message_is_its_signers_and_no_byte_of_it_anothers() {
    let signer = Signer::new("a");
    let key = signer.key();
    for flags in [&["-nocerts"][..], &["-noattr", "-nocerts"], &["-stream", "-indef"]] {
        let whole = signer.sign("the content", flags);
        let message = Message::read(&whole).unwrap();
        assert_eq!(message.content, b"the content");
        assert!(message.is_signed_by(&key), "{flags:?}");
        for at in 0..whole.len() {
            let mut bad = whole.clone();
            bad[at] ^= 1;
            let believed = Message::read(&bad).filter(|message| message.is_signed_by(&key));
            // Some bytes say nothing of the content, as the version does. The content is never another one.
            assert!(believed.is_none_or(|message| message.content == b"the content"), "{flags:?} {at}");
            assert!(
                Message::read(&whole[..at]).is_none_or(|message| !message.is_signed_by(&key)),
                "cut at {at}"
            );
        }
    }
}

#[test]
fn what_is_signed_otherwise_is_not_believed() {
    let signer = Signer::new("a");
    let sha1 = Message::read(&signer.sign("x", &["-md", "sha1"])).unwrap();
    assert!(!sha1.is_signed_by(&signer.key()));
    assert!(!Message::read(&signer.sign("x", &[])).unwrap().is_signed_by(&Signer::new("a").key()));
    // Nothing but garbage, lengths that lie, and things within things without an end.
    let deep = [0xa0, 0x80].repeat(4000);
    for bad in
        [&[][..], &[0x30], &[0x30, 0x80], &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff], &[0x04, 0x80, 0, 0], &deep]
    {
        assert!(Message::read(bad).is_none());
    }
}
