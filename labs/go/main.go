// A dataplane that knows nothing but the seed: it connects, prints what it is sent, and ends when it has seen
// what it was told to wait for.
//
//	lab ADDRESS ID CA CERT KEY NAME…    each NAME is `APPLY POLICY x` or the like, by the object's source name
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"lab/pb"
)

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(address, id, ca, cert, key string, awaited []string) error {
	pem, err := os.ReadFile(ca)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return err
	}
	config := &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, ServerName: "localhost"}
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	stream, err := pb.NewDataplaneEventsClient(connection).Connect(ctx, &pb.DatapathPodMetadata{Id: id})
	if err != nil {
		return err
	}
	names := map[string]string{}
	for len(awaited) > 0 {
		events, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("waiting for %v: %w", awaited, err)
		}
		for _, event := range events.Event {
			for _, data := range event.Data {
				fields := data.AsMap()
				name, _ := fields["name"].(string)
				// A removal has the name alone; what it stands for was said when it came.
				if source, ok := fields["source"].(map[string]any); ok {
					names[name], _ = source["name"].(string)
				}
				said := fmt.Sprintf("%v %v %v", events.Type, events.Object, names[name])
				fmt.Println(said, fields)
				if said == awaited[0] {
					fmt.Println("seen:", said)
					awaited = awaited[1:]
					if len(awaited) == 0 {
						return nil
					}
				}
			}
		}
	}
	return nil
}
