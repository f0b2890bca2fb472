// Collectors that others made, for `flows.export` to be tried with.
//
//	collectors otel --config FILE        an OpenTelemetry collector of its released parts: takes OTLP, prints all of it
//	collectors tell ADDRESS NAME ROWS    the flows of a node, told to a controller: NAME.pem, .key and .ca.pem are its certificate
//	collectors ipfix ADDRESS             takes IPFIX over TCP, and prints what it reads by the templates alone, a record a line
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/netsampler/goflow2/v2/decoders/netflow"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/fileprovider"
	"go.opentelemetry.io/collector/exporter/debugexporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/encoding/protowire"
)

func factories() (otelcol.Factories, error) {
	receivers, err := otelcol.MakeFactoryMap(otlpreceiver.NewFactory())
	if err != nil {
		return otelcol.Factories{}, err
	}
	exporters, err := otelcol.MakeFactoryMap(debugexporter.NewFactory())
	return otelcol.Factories{Receivers: receivers, Exporters: exporters, Telemetry: otelconftelemetry.NewFactory()}, err
}

func otel(arguments []string) error {
	command := otelcol.NewCommand(otelcol.CollectorSettings{
		BuildInfo: component.BuildInfo{Command: "collectors", Version: "lab"},
		Factories: factories,
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			DefaultScheme:     "file",
			ProviderFactories: []confmap.ProviderFactory{fileprovider.NewFactory()},
		}},
	})
	command.SetArgs(arguments)
	return command.Execute()
}

// One connection is one session: templates hold within it.
func read(connection net.Conn) error {
	templates := netflow.CreateTemplateSystem()
	for {
		header := make([]byte, 4)
		if _, err := io.ReadFull(connection, header); err != nil {
			return err
		}
		message := make([]byte, binary.BigEndian.Uint16(header[2:]))
		copy(message, header)
		if _, err := io.ReadFull(connection, message[4:]); err != nil {
			return err
		}
		var packet netflow.IPFIXPacket
		if err := netflow.DecodeMessageVersion(bytes.NewBuffer(message), templates, &netflow.NFv9Packet{}, &packet); err != nil {
			return fmt.Errorf("a message cannot be read: %w", err)
		}
		for _, set := range packet.FlowSets {
			data, is := set.(netflow.DataFlowSet)
			if !is {
				continue
			}
			for _, record := range data.Records {
				fields := map[string]string{"sequence": fmt.Sprint(packet.SequenceNumber)}
				for _, field := range record.Values {
					bytes, _ := field.Value.([]byte)
					fields[fmt.Sprint(field.Type)] = fmt.Sprintf("%x", bytes)
				}
				line, err := json.Marshal(fields)
				if err != nil {
					return err
				}
				fmt.Println(string(line))
			}
		}
	}
}

func ipfix(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "listening")
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		if err := read(connection); !errors.Is(err, io.EOF) {
			return err
		}
	}
}

// What is sent is bytes already.
type bare struct{}

func (bare) Marshal(message any) ([]byte, error)       { return message.([]byte), nil }
func (bare) Unmarshal(reply []byte, message any) error { *message.(*[]byte) = reply; return nil }
func (bare) Name() string                              { return "proto" }

// A row as trestle.v1.NodeFlow has it: what is denied has an odd port.
func row(port uint64, now uint64) []byte {
	var row []byte
	number := func(field protowire.Number, value uint64) {
		row = protowire.AppendVarint(protowire.AppendTag(row, field, protowire.VarintType), value)
	}
	address := func(field protowire.Number, value []byte) {
		row = protowire.AppendBytes(protowire.AppendTag(row, field, protowire.BytesType), value)
	}
	number(1, 1+port%2)
	number(2, 1)
	address(3, []byte{10, 0, 0, 2})
	address(4, []byte{10, 0, 0, 1})
	number(5, 6)
	number(6, port)
	number(9, 1)
	number(12, port)
	number(14, now)
	number(15, now)
	return row
}

func tell(address, name, rows string) error {
	count, err := strconv.ParseUint(rows, 10, 16)
	if err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(name+".pem", name+".key")
	if err != nil {
		return err
	}
	authority, err := os.ReadFile(name + ".ca.pem")
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	secure := credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool})
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(secure))
	if err != nil {
		return err
	}
	now := uint64(time.Now().UnixMilli())
	text := func(to []byte, field protowire.Number, value string) []byte {
		return protowire.AppendString(protowire.AppendTag(to, field, protowire.BytesType), value)
	}
	report := text(nil, 1, filepath.Base(name))
	report = protowire.AppendFixed64(protowire.AppendTag(report, 2, protowire.Fixed64Type), now)
	report = protowire.AppendVarint(protowire.AppendTag(report, 3, protowire.VarintType), 1)
	for port := uint64(1); port <= count; port++ {
		report = protowire.AppendBytes(protowire.AppendTag(report, 4, protowire.BytesType), row(port, now))
	}
	report = text(report, 5, "isolated by NetworkPolicy shop/web")
	var reply []byte
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return connection.Invoke(ctx, "/trestle.v1.Flows/ReportFlows", report, &reply, grpc.ForceCodec(bare{}))
}

func main() {
	var err error
	switch {
	case len(os.Args) == 4 && os.Args[1] == "otel":
		err = otel(os.Args[2:])
	case len(os.Args) == 5 && os.Args[1] == "tell":
		err = tell(os.Args[2], os.Args[3], os.Args[4])
	case len(os.Args) == 3 && os.Args[1] == "ipfix":
		err = ipfix(os.Args[2])
	default:
		err = errors.New("collectors otel --config FILE, ipfix ADDRESS, or tell ADDRESS NAME ROWS")
	}
	if err != nil {
		log.Fatal(err)
	}
}
