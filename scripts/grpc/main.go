// A gRPC server and client, by grpc-go, for scripts/grpc.sh: streams of small messages, which a client of grpc-go answers
// with PINGs to measure the bandwidth.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// service has two methods of streams: Down sends as many messages as it is asked for, Up counts what it is sent.
var service = grpc.ServiceDesc{
	ServiceName: "penstock.Test",
	HandlerType: (*any)(nil),
	Streams: []grpc.StreamDesc{
		{StreamName: "Down", ServerStreams: true, Handler: down},
		{StreamName: "Up", ClientStreams: true, Handler: up},
	},
}

func down(_ any, stream grpc.ServerStream) error {
	wanted := new(wrapperspb.UInt64Value)
	if err := stream.RecvMsg(wanted); err != nil {
		return err
	}
	return send(wanted.Value, stream.SendMsg)
}

func up(_ any, stream grpc.ServerStream) error {
	count, err := receive(stream.RecvMsg)
	if err != nil {
		return err
	}
	return stream.SendMsg(wrapperspb.UInt64(count))
}

var pause = flag.Duration("pause", 0, "between two messages")

func send(count uint64, say func(any) error) error {
	for n := uint64(0); n < count; n++ {
		if err := say(wrapperspb.UInt64(n)); err != nil {
			return fmt.Errorf("message %d of %d: %w", n, count, err)
		}
		time.Sleep(*pause)
	}
	return nil
}

func receive(hear func(any) error) (count uint64, err error) {
	for {
		switch err := hear(new(wrapperspb.UInt64Value)); err {
		case nil:
			count++
		case io.EOF:
			return count, nil
		default:
			return count, err
		}
	}
}

func main() {
	listen := flag.String("listen", "", "serve on this address")
	to := flag.String("to", "", "ask this address")
	messages := flag.Uint64("messages", 20000, "in each stream")
	flag.Parse()
	if *listen != "" {
		listener, err := net.Listen("tcp", *listen)
		if err != nil {
			log.Fatal(err)
		}
		server := grpc.NewServer()
		server.RegisterService(&service, new(any))
		log.Fatal(server.Serve(listener))
	}
	connection, err := grpc.Dial(*to, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	for _, what := range []struct {
		method string
		run    func(grpc.ClientStream) (uint64, error)
	}{{"Down", func(stream grpc.ClientStream) (uint64, error) {
		if err := stream.SendMsg(wrapperspb.UInt64(*messages)); err != nil {
			return 0, err
		}
		if err := stream.CloseSend(); err != nil {
			return 0, err
		}
		return receive(stream.RecvMsg)
	}}, {"Up", func(stream grpc.ClientStream) (uint64, error) {
		if err := send(*messages, stream.SendMsg); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if err := stream.CloseSend(); err != nil {
			return 0, err
		}
		count := new(wrapperspb.UInt64Value)
		// A stream that has ended is said to be so here, with the reason.
		err := stream.RecvMsg(count)
		return count.Value, err
	}}} {
		stream, err := connection.NewStream(context.Background(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/penstock.Test/"+what.method)
		if err != nil {
			log.Fatal(err)
		}
		count, err := what.run(stream)
		if err != nil || count != *messages {
			log.Fatalf("%s: %d of %d messages: %v", what.method, count, *messages, err)
		}
		fmt.Printf("%s: %d messages\n", what.method, count)
	}
}
