package trestle

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func written(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func quiet(t *testing.T) {
	t.Helper()
	for _, name := range []string{"TRESTLE_SERVER", "TRESTLE_CA", "TRESTLE_TOKEN_FILE", "TRESTLE_CERT", "TRESTLE_KEY", "TRESTLE_CONTEXT"} {
		t.Setenv(name, "")
	}
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
}

func TestTheContextIsWhatTheCommandLineUses(t *testing.T) {
	quiet(t)
	token := written(t, "token", "trestle-a-b\n")
	context := written(t, "context.json", `{"grpc": "http://127.0.0.1:1", "http": "http://127.0.0.1:2", "token_file": "`+token+`"}`)
	t.Setenv("TRESTLE_CONTEXT", context)
	config, err := Source{}.Config()
	if err != nil || config.Server != "http://127.0.0.1:1" || config.Token != "trestle-a-b" {
		t.Fatalf("%+v %v", config, err)
	}
	config, err = Source{Server: "http://127.0.0.1:9"}.Config()
	if err != nil || config.Token != "" {
		t.Fatalf("a server named by hand is given another one's token: %+v %v", config, err)
	}
}

func TestWithoutContextTheReasonNamesTheFile(t *testing.T) {
	quiet(t)
	if _, err := (Source{}).Config(); err == nil || !strings.Contains(err.Error(), "context.json is not there") {
		t.Fatal(err)
	}
	if _, err := (Source{Server: "http://127.0.0.1:9"}).Config(); err != nil {
		t.Fatal(err)
	}
	if _, err := (Source{Context: "/nowhere/context.json"}).Config(); err == nil {
		t.Fatal("a context that was asked for and is not there is passed over")
	}
	if _, err := (Source{Server: "http://127.0.0.1:9", Cert: "only.pem"}).Config(); err == nil {
		t.Fatal("a certificate without its key")
	}
}

func TestServersAreURLs(t *testing.T) {
	for _, server := range []string{"", "127.0.0.1:8081", "ftp://a", "https://", "http://controller.example:8081"} {
		if _, err := Connect(Config{Server: server}); err == nil {
			t.Errorf("%q is taken for a server", server)
		}
	}
	if _, err := Connect(Config{Server: "https://a", CA: []byte("nothing")}); err == nil {
		t.Error("a CA that is none")
	}
}

func TestDocuments(t *testing.T) {
	documents, err := Documents([]byte("# only a comment\n---\nkind: A\nport: 80\nyes: no\n---\n\n---\n{\"kind\": \"B\"}\n"))
	if err != nil || len(documents) != 2 || string(documents[0]) != `{"kind":"A","port":80,"yes":"no"}` || string(documents[1]) != `{"kind":"B"}` {
		t.Fatalf("%s %v", documents, err)
	}
	for _, bad := range []string{"kind: A\nkind: B\n", "- a list\n", "a: {1: 2}\n", "a: [\n"} {
		if documents, err := Documents([]byte(bad)); err == nil {
			t.Errorf("%q is taken for %s", bad, documents)
		}
	}
}
