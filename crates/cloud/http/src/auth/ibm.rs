//! IBM Cloud: an API key of IAM.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use http::Method;

use super::{Environment, Token, TokenSource, missing, token_request};
use crate::{Clock, Failure, Reply, Request, Transport, TransportError, form};

pub struct IbmTokens {
    environment: Environment,
    transport: Arc<dyn Transport>,
    clock: Arc<dyn Clock>,
}

impl IbmTokens {
    pub fn new(environment: Environment, transport: Arc<dyn Transport>, clock: Arc<dyn Clock>) -> Self {
        Self { environment, transport, clock }
    }
}

#[async_trait]
impl TokenSource for IbmTokens {
    async fn fetch(&self) -> Result<Token, Failure> {
        let env = |name| self.environment.get(name);
        let key = env("IBMCLOUD_API_KEY").or_else(|| env("IC_API_KEY"));
        let key = key.ok_or_else(|| missing("IBM Cloud: IBMCLOUD_API_KEY is not set"))?;
        let base = env("IBMCLOUD_IAM_API_ENDPOINT").unwrap_or_else(|| "https://iam.cloud.ibm.com".to_owned());
        let grant = "urn:ibm:params:oauth:grant-type:apikey";
        let request = Request::new("IBM's token endpoint", Method::POST, format!("{base}/identity/token"))
            .body("application/x-www-form-urlencoded", form([("grant_type", grant), ("apikey", &key)]));
        let patient = Patient { transport: &*self.transport, clock: &*self.clock };
        token_request(&patient, &*self.clock, request).await
    }
}

/// How many times IAM is asked that is busy or fails.
const TRIES: u32 = 4;

/// Asks again if IAM is throttling, failing or cut off: without a token nothing else can be asked.
struct Patient<'p> {
    transport: &'p dyn Transport,
    clock: &'p dyn Clock,
}

#[async_trait]
impl Transport for Patient<'_> {
    async fn send(&self, request: &Request) -> Result<Reply, TransportError> {
        let mut sent = self.transport.send(request).await;
        for attempt in 1..TRIES {
            if sent.as_ref().is_ok_and(|reply| reply.status != 429 && reply.status < 500) {
                break;
            }
            self.clock.sleep(Duration::from_secs(1 << attempt)).await;
            sent = self.transport.send(request).await;
        }
        sent
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::{Signer as _, auth::Bearer, testing::TestClock};

    /// IAM: tokens that last an hour, each with its number. Says what it was asked.
    #[derive(Default)]
    struct Iam {
        asked: Mutex<Vec<String>>,
        /// Statuses to answer with first; 0 is no answer.
        trouble: Mutex<Vec<u16>>,
    }

    #[async_trait]
    impl Transport for Iam {
        async fn send(&self, request: &Request) -> Result<Reply, TransportError> {
            let number = {
                let mut asked = self.asked.lock();
                asked.push(format!("{} {}", request.url, String::from_utf8_lossy(&request.body)));
                asked.len()
            };
            let status = self.trouble.lock().pop().unwrap_or(200);
            let body = match status {
                0 => return Err(TransportError("cut".into())),
                200 => format!(r#"{{"access_token":"t{number}","expires_in":3600,"expiration":1}}"#),
                _ => r#"{"errorCode":"BXNIM0415E","errorMessage":"Provided API key could not be found."}"#
                    .to_owned(),
            };
            Ok(Reply { status, headers: Default::default(), body: body.into() })
        }
    }

    fn setup(trouble: &[u16], key: &str) -> (Arc<Iam>, Arc<TestClock>, Bearer) {
        let (iam, time) = (Arc::new(Iam::default()), TestClock::at(0));
        *iam.trouble.lock() = trouble.to_vec();
        let environment =
            Environment::of([("IBMCLOUD_API_KEY", key), ("IBMCLOUD_IAM_API_ENDPOINT", "http://iam")]);
        let tokens = IbmTokens::new(environment, Arc::clone(&iam) as _, Arc::clone(&time) as _);
        let bearer = Bearer::new(Arc::new(tokens), Arc::clone(&time) as _);
        (iam, time, bearer)
    }

    async fn shown(bearer: &Bearer) -> Result<String, Failure> {
        let mut request = Request::new("x", Method::GET, "http://x/");
        bearer.sign(&mut request).await?;
        Ok(request.headers["authorization"].to_str().unwrap().to_owned())
    }

    #[tokio::test]
    async fn a_key_becomes_a_token_that_is_renewed_before_it_ends() {
        let (iam, time, bearer) = setup(&[], "the key");
        assert_eq!(shown(&bearer).await.unwrap(), "Bearer t1");
        time.advance(Duration::from_secs(3200));
        assert_eq!(shown(&bearer).await.unwrap(), "Bearer t1");
        time.advance(Duration::from_secs(150));
        assert_eq!(shown(&bearer).await.unwrap(), "Bearer t2", "five minutes before its end");
        let asked = iam.asked.lock().clone();
        let grant = "grant_type=urn%3Aibm%3Aparams%3Aoauth%3Agrant-type%3Aapikey";
        assert_eq!(asked[0], format!("http://iam/identity/token {grant}&apikey=the%20key"));
        assert_eq!(asked.len(), 2);
    }

    #[tokio::test]
    async fn a_busy_endpoint_is_asked_again_and_a_wrong_key_is_not() {
        let (_, _, bearer) = setup(&[0, 503, 429], "k");
        assert_eq!(shown(&bearer).await.unwrap(), "Bearer t4");
        let (iam, _, bearer) = setup(&[400], "wrong");
        let err = shown(&bearer).await.unwrap_err();
        assert!(err.to_string().contains("could not be found"), "{err}");
        assert!(!err.to_string().contains("wrong"), "{err}");
        assert_eq!(iam.asked.lock().len(), 1);
        let (_, _, bearer) = setup(&[], "");
        assert!(shown(&bearer).await.unwrap_err().to_string().contains("IBMCLOUD_API_KEY"));
    }
}
