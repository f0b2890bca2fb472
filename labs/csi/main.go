// Calls a CSI driver: call SOCKET SERVICE/METHOD [JSON]. Prints the reply as JSON, or CODE: message, with exit code 1.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	_ "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

func main() {
	if err := call(os.Args[1:]); err != nil {
		fmt.Printf("%s: %s\n", status.Code(err), status.Convert(err).Message())
		os.Exit(1)
	}
}

func call(args []string) error {
	socket, method, text := args[0], args[1], "{}"
	if len(args) > 2 {
		text = args[2]
	}
	name := "csi.v1." + strings.Replace(method, "/", ".", 1)
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		return err
	}
	described := found.(protoreflect.MethodDescriptor)
	request, err := protoregistry.GlobalTypes.FindMessageByName(described.Input().FullName())
	if err != nil {
		return err
	}
	reply, err := protoregistry.GlobalTypes.FindMessageByName(described.Output().FullName())
	if err != nil {
		return err
	}
	in, out := request.New().Interface(), reply.New().Interface()
	if err := protojson.Unmarshal([]byte(text), in); err != nil {
		return err
	}
	connection, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := connection.Invoke(ctx, "/csi.v1."+method, in, out, grpc.WaitForReady(true)); err != nil {
		return err
	}
	fmt.Println(protojson.Format(out))
	return nil
}
