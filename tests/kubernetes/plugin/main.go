// A device plugin: `plugin FOLDER UUID...` tells the kubelet whose plugins' folder that is of so many nvidia.com/gpu, and a
// container which of them it got, as NVIDIA's does. It registers again when the kubelet has started again.
package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const socket = "gpus.sock"

type plugin struct {
	api.UnimplementedDevicePluginServer
	uuids []string
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *api.Empty, to grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	var devices []*api.Device
	for _, uuid := range p.uuids {
		devices = append(devices, &api.Device{ID: uuid, Health: api.Healthy})
	}
	if err := to.Send(&api.ListAndWatchResponse{Devices: devices}); err != nil {
		return err
	}
	<-to.Context().Done()
	return nil
}

func (p *plugin) Allocate(_ context.Context, asked *api.AllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for _, each := range asked.ContainerRequests {
		envs := map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(each.DevicesIds, ",")}
		answer.ContainerResponses = append(answer.ContainerResponses, &api.ContainerAllocateResponse{Envs: envs})
	}
	return answer, nil
}

func serve(folder string, uuids []string) error {
	path := filepath.Join(folder, socket)
	os.Remove(path)
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	defer server.Stop()
	api.RegisterDevicePluginServer(server, &plugin{uuids: uuids})
	go server.Serve(listener)
	way, err := grpc.NewClient("unix://"+filepath.Join(folder, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer way.Close()
	whole, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	request := &api.RegisterRequest{Version: api.Version, Endpoint: socket, ResourceName: "nvidia.com/gpu"}
	if _, err = api.NewRegistrationClient(way).Register(whole, request); err != nil {
		return err
	}
	for { // a kubelet that starts removes the sockets
		time.Sleep(time.Second)
		if _, err := os.Stat(path); err != nil {
			return err
		}
	}
}

func main() {
	for {
		if err := serve(os.Args[1], os.Args[2:]); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
		}
		time.Sleep(time.Second)
	}
}
