package trestle

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Config says where a controller is and who calls.
type Config struct {
	// URL of its gRPC listener: https://127.0.0.1:8081. With http:// there is no TLS, which a controller takes on loopback only.
	Server string
	// PEM of the CA that its certificate is from. None: those that this machine trusts.
	CA []byte
	// A bearer token. None: none is shown.
	Token string
	// A client certificate, instead of a token.
	Certificate *tls.Certificate
}

// Source says what to take a Config from. What is not given is taken from the environment (TRESTLE_SERVER, TRESTLE_CA,
// TRESTLE_TOKEN_FILE, TRESTLE_CERT, TRESTLE_KEY), and what is not there either from the context file of the command line.
type Source struct {
	// The context file. Empty: TRESTLE_CONTEXT, or where `trestle up` writes it.
	Context                                       string
	Server, CAFile, Token, TokenFile, Cert, Key string
}

// the file that `trestle up` writes.
type contextFile struct {
	GRPC      string `json:"grpc"`
	CA        string `json:"ca"`
	TokenFile string `json:"token_file"`
}

// Config reads the files that are meant. As on the command line, a server that is named by hand is not given the token of another one.
func (s Source) Config() (Config, error) {
	or := func(value *string, variable string) {
		if *value == "" {
			*value = os.Getenv(variable)
		}
	}
	or(&s.Server, "TRESTLE_SERVER")
	or(&s.CAFile, "TRESTLE_CA")
	or(&s.TokenFile, "TRESTLE_TOKEN_FILE")
	or(&s.Cert, "TRESTLE_CERT")
	or(&s.Key, "TRESTLE_KEY")
	if (s.Cert == "") != (s.Key == "") {
		return Config{}, errors.New("a client certificate and its key go together")
	}
	noted, err := s.context()
	if err != nil {
		return Config{}, err
	}
	if s.Server == "" {
		s.Server = noted.GRPC
		if s.TokenFile == "" && s.Token == "" && s.Cert == "" {
			s.TokenFile = noted.TokenFile
		}
	}
	if s.CAFile == "" {
		s.CAFile = noted.CA
	}
	return s.read()
}

func (s Source) read() (Config, error) {
	config := Config{Server: s.Server, Token: s.Token}
	if s.CAFile != "" && strings.HasPrefix(s.Server, "https://") {
		ca, err := readFile("CA", s.CAFile)
		if err != nil {
			return Config{}, err
		}
		config.CA = ca
	}
	if s.Cert != "" {
		pair, err := tls.LoadX509KeyPair(s.Cert, s.Key)
		if err != nil {
			return Config{}, fmt.Errorf("cannot use the client certificate: %w", err)
		}
		config.Certificate = &pair
	} else if config.Token == "" && s.TokenFile != "" {
		token, err := readFile("token", s.TokenFile)
		if err != nil {
			return Config{}, err
		}
		config.Token = strings.TrimSpace(string(token))
	}
	return config, nil
}

func (s Source) context() (contextFile, error) {
	path := s.Context
	if path == "" {
		path = os.Getenv("TRESTLE_CONTEXT")
	}
	if path == "" {
		dir, err := os.UserConfigDir()
		if err != nil {
			return contextFile{}, s.without(fmt.Errorf("there is no directory for a context: %w", err))
		}
		path = filepath.Join(dir, "trestle", "context.json")
	}
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return contextFile{}, s.without(fmt.Errorf("no controller is known: %s is not there; start one with `trestle up`, or name a server", path))
	case err != nil:
		return contextFile{}, fmt.Errorf("cannot read the context: %w", err)
	}
	var noted contextFile
	if err := json.Unmarshal(text, &noted); err != nil {
		return contextFile{}, fmt.Errorf("cannot understand the context %s: %w", path, err)
	}
	return noted, nil
}

// A context that is not there is needed only where no server is named.
func (s Source) without(err error) error {
	if s.Server != "" {
		return nil
	}
	return err
}
